#include "core/agree/signature.h"

#include <cstdio>

namespace covey {
namespace {

// Shape as it stands in the signature: gathered tensors may differ in dimension 0.
Shape AgreedShape(Kind kind, const Shape& shape) {
  Shape agreed = shape;
  if (Gathers(kind)) agreed.dims[0] = 0;
  return agreed;
}

bool SameShape(Kind kind, const Shape& shape, const Shape& agreed) {
  if (shape.ndim != agreed.ndim) return false;
  const int first = Gathers(kind) ? 1 : 0;
  for (int i = first; i < shape.ndim; ++i)
    if (shape.dims[i] != agreed.dims[i]) return false;
  return true;
}

std::string Differ(const char* what, const std::string& name_a, const std::string& value_a,
                   const std::string& name_b, const std::string& value_b) {
  const auto has = [](const std::string& name) {
    return name.starts_with("ranks") ? " have " : " has ";
  };
  return std::string(what) + " differ: " + name_a + has(name_a) + value_a + ", " + name_b +
         has(name_b) + value_b;
}

std::string OpName(const Signature& s) { return NameOf(s.average ? Op::kAverage : s.op); }

std::string CodecName(const Signature& s) {
  return s.codec.empty() ? "none" : s.codec + (s.feeds_back ? " with error feedback" : "");
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

const char* NameOf(DeviceType device) {
  constexpr const char* kNames[] = {"cpu", "cuda", "fake"};
  return kNames[static_cast<int>(device)];
}

}  // namespace

size_t Signature::Elems() const {
  size_t elems = 0;
  for (const Shape& shape : shapes) elems += static_cast<size_t>(shape.Elems());
  return elems;
}

Signature SignatureOf(const Request& request) {
  Signature s{.kind = request.kind,
              .op = request.op,
              .average = request.average,
              .root = request.root,
              .prescale = request.prescale,
              .postscale = request.postscale,
              .codec = request.codec,
              .form = request.form,
              .feeds_back = request.feeds_back};
  for (const Tensor& t : request.inputs) {
    s.dtype = t.dtype;
    s.device = t.device;
    s.shapes.push_back(AgreedShape(request.kind, t.shape));
  }
  return s;
}

bool Matches(const Request& request, const Signature& s) {
  if (request.kind != s.kind || request.op != s.op || request.average != s.average ||
      request.root != s.root || request.prescale != s.prescale ||
      request.postscale != s.postscale || request.codec != s.codec ||
      request.feeds_back != s.feeds_back || request.inputs.size() != s.shapes.size())
    return false;
  for (size_t i = 0; i < s.shapes.size(); ++i) {
    const Tensor& t = request.inputs[i];
    if (t.dtype != s.dtype || t.device != s.device || !SameShape(s.kind, t.shape, s.shapes[i]))
      return false;
  }
  return true;
}

std::string DescribeDifference(const Signature& a, const std::string& name_a, const Signature& b,
                               const std::string& name_b) {
  const auto differ = [&](const char* what, const std::string& value_a,
                          const std::string& value_b) {
    return Differ(what, name_a, value_a, name_b, value_b);
  };
  if (a.kind != b.kind) return differ("operations", covey::NameOf(a.kind), covey::NameOf(b.kind));
  if (a.shapes.size() != b.shapes.size())
    return differ("numbers of tensors", std::to_string(a.shapes.size()),
                  std::to_string(b.shapes.size()));
  if (a.dtype != b.dtype) return differ("dtypes", covey::NameOf(a.dtype), covey::NameOf(b.dtype));
  for (size_t i = 0; i < a.shapes.size(); ++i) {
    if (a.shapes[i] == b.shapes[i]) continue;
    return differ(Gathers(a.kind) ? "shapes beyond dimension 0" : "shapes", ToString(a.shapes[i]),
                  ToString(b.shapes[i]));
  }
  if (OpName(a) != OpName(b)) return differ("reduction ops", OpName(a), OpName(b));
  if (a.root != b.root)
    return differ("roots", std::to_string(ToInt(a.root)), std::to_string(ToInt(b.root)));
  if (a.prescale != b.prescale)
    return differ("prescale factors", Number(a.prescale), Number(b.prescale));
  if (a.postscale != b.postscale)
    return differ("postscale factors", Number(a.postscale), Number(b.postscale));
  if (CodecName(a) != CodecName(b)) return differ("codecs", CodecName(a), CodecName(b));
  return differ("devices", NameOf(a.device), NameOf(b.device));
}

void Encode(const Signature& s, Writer* writer) {
  writer->Put(static_cast<uint8_t>(s.kind));
  writer->Put(static_cast<uint8_t>(s.dtype));
  writer->Put(static_cast<uint8_t>(s.op));
  writer->Put(static_cast<uint8_t>(s.average));
  writer->Put(static_cast<uint8_t>(s.device));
  writer->Put(ToInt(s.root));
  writer->Put(s.prescale);
  writer->Put(s.postscale);
  writer->PutString(s.codec);
  writer->Put(s.form.block_elems);
  writer->Put(s.form.header_bytes);
  writer->Put(s.form.elem_bits);
  writer->Put(static_cast<uint8_t>(s.feeds_back));
  writer->Put(static_cast<uint32_t>(s.shapes.size()));
  for (const Shape& shape : s.shapes) {
    writer->Put(static_cast<uint8_t>(shape.ndim));
    for (int i = 0; i < shape.ndim; ++i) writer->Put(shape.dims[i]);
  }
}

bool Decode(Reader* reader, Signature* s) {
  const auto kind = reader->Get<uint8_t>();
  const auto dtype = reader->Get<uint8_t>();
  const auto op = reader->Get<uint8_t>();
  s->average = reader->Get<uint8_t>() != 0;
  const auto device = reader->Get<uint8_t>();
  s->root = Rank{reader->Get<int32_t>()};
  s->prescale = reader->Get<double>();
  s->postscale = reader->Get<double>();
  s->codec = reader->GetString();
  s->form.block_elems = reader->Get<uint32_t>();
  s->form.header_bytes = reader->Get<uint32_t>();
  s->form.elem_bits = reader->Get<uint32_t>();
  s->feeds_back = reader->Get<uint8_t>() != 0;
  const auto count = reader->Get<uint32_t>();
  if (s->codec.empty() ? s->form != EncodedLayout{} : !s->form.Possible()) return false;
  if (!reader->ok() || kind >= kNumKinds || dtype >= kNumDTypes || op >= kNumOps ||
      device > static_cast<uint8_t>(DeviceType::kFake))
    return false;
  s->kind = Kind{kind};
  s->dtype = DType{dtype};
  s->op = Op{op};
  s->device = DeviceType{device};
  for (uint32_t i = 0; i < count; ++i) {
    Shape shape;
    shape.ndim = reader->Get<uint8_t>();
    if (!reader->ok() || shape.ndim > kMaxDims) return false;
    for (int d = 0; d < shape.ndim; ++d) shape.dims[d] = reader->Get<int64_t>();
    if (!reader->ok()) return false;
    s->shapes.push_back(shape);
  }
  return reader->ok();
}

}  // namespace covey
