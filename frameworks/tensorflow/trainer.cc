// A trainer of the core as operations: what core/api/covey_trainer.h asks an adapter for, so that a
// step runs eagerly, in a tf.function and in Keras's fit. covey/tensorflow/trainer.py makes the
// loop over CoveyTrainerNext of them. Which actions come is the core's affair: nothing here knows a
// method.
//
// trainer_declarations.cc declares them. Compiled as collectives.cc is. The trainer itself is
// opened and closed through covey._native.
//
// Threads: all run on threads of TensorFlow. CoveyTrainerNext in a graph waits for kHandOverNs, and
// then on a thread of its own: those of TensorFlow stay free for what other ranks may wait for.
//
// Invariants:
//  1. Every operation takes the handle of its trainer, a resource: TensorFlow keeps operations on
//     one in the order of the program, so one call of the core runs at a time, without a lock.
//  2. A call of the core that was cut off, because an operation between two of these failed, is
//     stopped before the next one begins: an action that was not done is given again then.
//  3. Numbers are copied once, between TensorFlow's memory and the trainer's. What is listed lies
//     in memory of this file's, not in that of a variable, which may be another one's too.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/covey.h"
#include "core/api/covey_trainer.h"
#include "frameworks/tensorflow/translation.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/env.h"

namespace {

namespace tf = tensorflow;
using covey_tensorflow::DtypeOf;
using covey_tensorflow::kHandOverNs;
using covey_tensorflow::StatusOf;

constexpr int64_t kSliceNs = 50 * 1000 * 1000;  // How long a cancellation, or a signal, waits.

// ---- The trainer -------------------------------------------------------------------------------

// The resource: see the invariants.
struct Trainer : public tf::ResourceBase {
  covey_trainer number = 0;
  std::vector<int64_t> lengths_bytes;
  covey_action action = COVEY_INIT(covey_action);  // Given, not acknowledged; number 0: none.
  bool is_open = false;                            // A call of the core has not come to its end.
  std::vector<tf::Tensor> listed;

  std::string DebugString() const override { return "trainer of Covey"; }

  absl::Status Ack(uint64_t given, bool done) {
    action = COVEY_INIT(covey_action);
    covey_error error = COVEY_INIT(covey_error);
    return StatusOf(covey_trainer_ack(nullptr, number, given, done ? 1 : 0, &error), error);
  }

  // Of the core. Whether it has given an action, or the call under way has ended.
  bool Next(int64_t timeout_ns, covey_code* code, covey_error* error) {
    action = COVEY_INIT(covey_action);
    *code = covey_trainer_next(nullptr, number, timeout_ns, &action, error);
    const bool is_pending = *code == COVEY_TIMEOUT && action.verb == COVEY_PENDING;
    is_open = is_pending || action.number != 0;
    return !is_pending;
  }

  // A call that an error elsewhere has cut off stops where it is: the next one takes it up. The
  // operation that failed has said why.
  void Stop() {
    covey_code code = COVEY_OK;
    covey_error error = COVEY_INIT(covey_error);
    if (is_open && action.number == 0) Next(0, &code, &error);
    if (action.number != 0) Ack(action.number, false).IgnoreError();
  }

  absl::Status Spans(bool of_model, std::vector<void*>* spans) {
    spans->assign(lengths_bytes.size(), nullptr);
    covey_error error = COVEY_INIT(covey_error);
    const covey_code code = of_model
                                ? covey_trainer_model(nullptr, number, spans->data(), &error)
                                : covey_trainer_gradients(nullptr, number, spans->data(), &error);
    return StatusOf(code, error);
  }

  // Whether tensor `i` of those that are copied has its parameter's size.
  absl::Status CheckLength(size_t i, const tf::Tensor& tensor) const {
    const auto bytes = static_cast<int64_t>(tensor.TotalBytes());
    if (i < lengths_bytes.size() && lengths_bytes[i] == bytes) return absl::OkStatus();
    return absl::InvalidArgumentError("tensor " + std::to_string(i) + " has " +
                                      std::to_string(bytes) +
                                      " bytes, and its parameter has others");
  }
};

absl::Status TrainerOf(tf::OpKernelContext* c, tf::core::RefCountPtr<Trainer>* trainer) {
  return tf::LookupResource(c, tf::HandleFromInput(c, 0), trainer);
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// An operation that ends at once.
using Act = absl::Status (*)(tf::OpKernelContext*, tf::OpKernel*, Trainer*);

template <Act act>
class Action : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* c) override {
    tf::core::RefCountPtr<Trainer> trainer;
    OP_REQUIRES_OK(c, TrainerOf(c, &trainer));
    OP_REQUIRES_OK(c, act(c, this, trainer.get()));
  }
};

template <typename T>
absl::Status Attribute(tf::OpKernel* kernel, const char* name, T* value) {
  return tf::GetNodeAttr(kernel->def(), name, value);
}

absl::Status AllocateAs(tf::OpKernelContext* c, int i, const tf::PartialTensorShape& declared,
                        tf::Tensor** output) {
  tf::TensorShape shape;
  if (!declared.AsTensorShape(&shape)) return absl::InvalidArgumentError("a shape is not known");
  return c->allocate_output(i, shape, output);
}

// ---- The actions -------------------------------------------------------------------------------

absl::Status Begin(tf::OpKernelContext* c, tf::OpKernel* kernel, Trainer* trainer) {
  std::string call;
  TF_RETURN_IF_ERROR(Attribute(kernel, "call", &call));
  trainer->Stop();
  covey_error error = COVEY_INIT(covey_error);
  covey_code code = COVEY_OK;
  if (call == "step") {
    covey_step step = COVEY_INIT(covey_step);
    step.hypers = c->input(1).flat<double>().data();
    code = covey_trainer_submit(nullptr, trainer->number, &step, &error);
  } else if (call == "settle") {
    code = covey_trainer_settle(nullptr, trainer->number, &error);
  } else if (call == "serve") {
    code = covey_trainer_serve(nullptr, trainer->number, &error);
  } else {
    const int strict = call == "strict finish" ? 1 : 0;
    code = covey_trainer_finish(nullptr, trainer->number, strict, &error);
  }
  trainer->is_open = code == COVEY_OK;
  return StatusOf(code, error);
}

absl::Status Ack(tf::OpKernelContext* c, tf::OpKernel*, Trainer* trainer) {
  const auto given = static_cast<uint64_t>(c->input(1).scalar<int64_t>()());
  if (given == 0) return absl::OkStatus();  // There was nothing to be done.
  return trainer->Ack(given, c->input(2).scalar<bool>()());
}

absl::Status Put(tf::OpKernelContext* c, tf::OpKernel* kernel, Trainer* trainer) {
  bool of_model = false;
  TF_RETURN_IF_ERROR(Attribute(kernel, "of_model", &of_model));
  std::vector<void*> spans;
  TF_RETURN_IF_ERROR(trainer->Spans(of_model, &spans));
  for (size_t i = 0; i < spans.size(); ++i) {
    const tf::Tensor& tensor = c->input(static_cast<int>(i) + 1);
    TF_RETURN_IF_ERROR(trainer->CheckLength(i, tensor));
    Copy(spans[i], tensor.data(), tensor.TotalBytes());
  }
  return absl::OkStatus();
}

absl::Status Get(tf::OpKernelContext* c, tf::OpKernel* kernel, Trainer* trainer) {
  bool of_model = false;
  std::vector<tf::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(Attribute(kernel, "of_model", &of_model));
  TF_RETURN_IF_ERROR(Attribute(kernel, "shapes", &shapes));
  std::vector<void*> spans;
  TF_RETURN_IF_ERROR(trainer->Spans(of_model, &spans));
  for (size_t i = 0; i < shapes.size(); ++i) {
    tf::Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(AllocateAs(c, static_cast<int>(i), shapes[i], &output));
    TF_RETURN_IF_ERROR(trainer->CheckLength(i, *output));
    Copy(output->data(), spans[i], output->TotalBytes());
  }
  return absl::OkStatus();
}

absl::Status Give(tf::OpKernelContext* c, tf::OpKernel*, Trainer* trainer) {
  std::vector<const void*> parts;
  std::vector<int64_t> lengths;
  for (int i = 1; i < c->num_inputs(); ++i) {
    parts.push_back(c->input(i).data());
    lengths.push_back(static_cast<int64_t>(c->input(i).TotalBytes()));
  }
  covey_error error = COVEY_INIT(covey_error);
  const covey_code code = covey_trainer_give(nullptr, trainer->number, parts.data(), lengths.data(),
                                             static_cast<int32_t>(parts.size()), &error);
  return StatusOf(code, error);
}

absl::Status Take(tf::OpKernelContext* c, tf::OpKernel* kernel, Trainer* trainer) {
  std::vector<tf::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(Attribute(kernel, "shapes", &shapes));
  const auto* from = static_cast<const char*>(trainer->action.image);
  int64_t left_bytes = trainer->action.length_bytes;
  for (size_t i = 0; i < shapes.size(); ++i) {
    tf::Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(AllocateAs(c, static_cast<int>(i), shapes[i], &output));
    left_bytes -= static_cast<int64_t>(output->TotalBytes());
    if (left_bytes < 0) break;
    Copy(output->data(), from, output->TotalBytes());
    from += output->TotalBytes();
  }
  if (left_bytes == 0) return absl::OkStatus();
  return absl::InternalError("the state of another rank has another size than this rank's");
}

absl::Status List(tf::OpKernelContext* c, tf::OpKernel*, Trainer* trainer) {
  trainer->listed.clear();
  std::vector<covey_state_array> arrays;
  for (int i = 1; i < c->num_inputs(); ++i) {
    const tf::Tensor& given = c->input(i);
    tf::Tensor own;
    TF_RETURN_IF_ERROR(c->allocate_temp(given.dtype(), given.shape(), &own));
    Copy(own.data(), given.data(), given.TotalBytes());
    covey_state_array array = COVEY_INIT(covey_state_array);
    array.data = own.data();
    array.dtype = DtypeOf(given.dtype());
    array.op = tf::DataTypeIsFloating(given.dtype()) ? COVEY_AVERAGE : COVEY_MAX;
    array.count = given.NumElements();
    arrays.push_back(array);
    trainer->listed.push_back(std::move(own));
  }
  covey_error error = COVEY_INIT(covey_error);
  const covey_code code = covey_trainer_list(nullptr, trainer->number, arrays.data(),
                                             static_cast<int32_t>(arrays.size()), &error);
  return StatusOf(code, error);
}

absl::Status Listed(tf::OpKernelContext* c, tf::OpKernel*, Trainer* trainer) {
  if (static_cast<int>(trainer->listed.size()) != c->num_outputs())
    return absl::InternalError("other arrays were listed");
  for (int i = 0; i < c->num_outputs(); ++i)
    c->set_output(i, trainer->listed[static_cast<size_t>(i)]);
  trainer->listed.clear();
  return absl::OkStatus();
}

// ---- Making one, and waiting -------------------------------------------------------------------

class Make : public tf::OpKernel {
 public:
  explicit Make(tf::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("number", &number_));
    OP_REQUIRES_OK(c, c->GetAttr("lengths", &lengths_bytes_));
  }

  void Compute(tf::OpKernelContext* c) override {
    tf::Tensor* handle = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, tf::TensorShape({}), &handle));
    auto* trainer = new Trainer();  // The handle's: it ends with the last copy.
    trainer->number = static_cast<covey_trainer>(number_);
    trainer->lengths_bytes = lengths_bytes_;
    handle->scalar<tf::ResourceHandle>()() =
        tf::ResourceHandle::MakeRefCountingHandle(trainer, c->device()->name());
  }

 private:
  int64_t number_ = 0;
  std::vector<int64_t> lengths_bytes_;
};

class Next : public tf::AsyncOpKernel {
 public:
  explicit Next(tf::OpKernelConstruction* c) : AsyncOpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("num_hypers", &num_hypers_));
    OP_REQUIRES_OK(c, c->GetAttr("returns", &returns_));
  }

  void ComputeAsync(tf::OpKernelContext* c, DoneCallback done) override {
    tf::core::RefCountPtr<Trainer> found;
    OP_REQUIRES_OK_ASYNC(c, TrainerOf(c, &found), done);
    if (Ask(c, found.get(), returns_ ? kSliceNs : kHandOverNs) || returns_) {
      done();
      return;
    }
    Trainer* trainer = found.release();
    tf::Env::Default()->SchedClosure([this, c, trainer, done = std::move(done)] {
      const tf::core::RefCountPtr<Trainer> kept(trainer);
      while (!Ask(c, trainer, kSliceNs)) {
        if (c->cancellation_manager() == nullptr || !c->cancellation_manager()->IsCancelled())
          continue;
        c->SetStatus(absl::CancelledError("a step of training was cancelled while it waited"));
        break;
      }
      done();
    });
  }

 private:
  // Whether the core has given an action, or an error; `c` has it then, and also what is pending.
  bool Ask(tf::OpKernelContext* c, Trainer* trainer, int64_t timeout_ns) const {
    covey_code code = COVEY_OK;
    covey_error error = COVEY_INIT(covey_error);
    const bool is_over = trainer->Next(timeout_ns, &code, &error);
    if (is_over)
      c->SetStatus(code == COVEY_OK ? Output(c, trainer->action) : StatusOf(code, error));
    else if (returns_)
      c->SetStatus(Output(c, trainer->action));
    return is_over;
  }

  absl::Status Output(tf::OpKernelContext* c, const covey_action& action) const {
    tf::Tensor *verb = nullptr, *number = nullptr, *hypers = nullptr;
    TF_RETURN_IF_ERROR(c->allocate_output(0, tf::TensorShape({}), &verb));
    TF_RETURN_IF_ERROR(c->allocate_output(1, tf::TensorShape({}), &number));
    TF_RETURN_IF_ERROR(c->allocate_output(2, tf::TensorShape({num_hypers_}), &hypers));
    verb->scalar<int32_t>()() = static_cast<int32_t>(action.verb);
    number->scalar<int64_t>()() = static_cast<int64_t>(action.number);
    hypers->flat<double>().setZero();
    if (action.hypers != nullptr) Copy(hypers->data(), action.hypers, hypers->TotalBytes());
    return absl::OkStatus();
  }

  int64_t num_hypers_ = 0;
  bool returns_ = false;
};

REGISTER_KERNEL_BUILDER(Name("CoveyTrainer").Device(tf::DEVICE_CPU), Make);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerBegin").Device(tf::DEVICE_CPU), Action<Begin>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerNext").Device(tf::DEVICE_CPU), Next);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerAck").Device(tf::DEVICE_CPU), Action<Ack>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerPut").Device(tf::DEVICE_CPU), Action<Put>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerGet").Device(tf::DEVICE_CPU), Action<Get>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerGive").Device(tf::DEVICE_CPU), Action<Give>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerTake").Device(tf::DEVICE_CPU), Action<Take>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerList").Device(tf::DEVICE_CPU), Action<List>);
REGISTER_KERNEL_BUILDER(Name("CoveyTrainerListed").Device(tf::DEVICE_CPU), Action<Listed>);

}  // namespace
