#include "core/agree/join.h"

#include <algorithm>
#include <utility>

#include "core/agree/negotiator.h"

namespace covey {

struct Join::ProxyRequest {
  Request request;
  Bytes memory;  // the identity element, then whatever the reduction writes
};

namespace {

// How long a message may be under way to this rank that another one has had and acted on.
constexpr Time kLastWords = kSecond;

bool IsWorld(const Stream& stream) { return stream.group->key == 0; }

bool CanTakePart(const Signature& signature) {
  if (!TraitsOf(signature.kind).admits_joined) return false;
  if (!HasTensors(signature.kind)) return true;
  const bool scaled = signature.prescale != 1.0 && signature.op != Op::kSum;
  // The identity element of a minimum or maximum is infinite, which a codec need not keep.
  const bool coded = !signature.codec.empty() && signature.op != Op::kSum;
  return signature.device == DeviceType::kCpu && !scaled && !coded;
}

}  // namespace

Join::Join(Rank self) : self_(self) {}

Join::~Join() = default;

void Join::Submit(Request* join) {
  if (join_ != nullptr) {
    ended_.push_back({join, Status::InvalidArgument("join: another join is in progress")});
    return;
  }
  join_ = join;
  said_ = false;
  // agree-N10: a lost rank never joins, so the join ends with the error of the loss.
  if (!aborted_.ok()) Abort(aborted_);
}

void Join::Progress(const Negotiator& negotiator, Time now) {
  if (abort_at_ <= now) Abort(aborted_);
  if (join_ == nullptr || said_) return;
  // agree-N10: a rank joins when nothing of the world is in flight on it.
  for (const auto& stream : negotiator.streams().all())
    if (IsWorld(*stream) && stream->Front() != nullptr) return;
  said_ = true;
  outbox_.push_back({join_->group->Coordinator(), {.type = MessageType::kJoin}});
}

Status Join::Check(const Request& request) const {
  // agree-N10: a rank that has joined submits nothing more.
  if (!said_ || request.group->key != 0) return Status::Ok();
  return Status::InvalidArgument(std::string(NameOf(request.kind)) + " '" + request.name +
                                 "': this rank has joined; submit it after join() has returned");
}

bool Join::Leads() const {
  if (joined_.empty() || said_) return false;
  // agree-N10: the lowest rank that has not joined tells the joined ones.
  for (int32_t r = 0; r < ToInt(self_); ++r)
    if (std::find(joined_.begin(), joined_.end(), r) == joined_.end()) return false;
  return true;
}

// Tells the joined ranks of the stream's request at waiting[index].
void Join::Tell(const Stream& stream, size_t index) {
  const auto ahead = static_cast<uint32_t>(index - stream.head);
  const Message told{.type = MessageType::kShadow,
                     .id = {stream.group->key, stream.name, stream.occurrence + ahead},
                     .signature = SignatureOf(*stream.waiting[index]),
                     .entry = drops_};
  for (int32_t rank : joined_) outbox_.push_back({Rank{rank}, told});
}

void Join::OnSubmit(const Stream& stream) {
  if (joined_.empty() || !IsWorld(stream) || stream.Front() == nullptr || !Leads()) return;
  Tell(stream, stream.waiting.size() - 1);
}

void Join::OnJoined(const Message& message, const Negotiator& negotiator) {
  joined_ = message.ranks;
  if (!Leads()) return;
  for (const auto& stream : negotiator.streams().all()) {
    if (!IsWorld(*stream)) continue;
    // agree-N10: joined ranks also take part in what is already in flight, or it never ends.
    for (size_t i = stream->head; i < stream->waiting.size(); ++i) Tell(*stream, i);
  }
}

void Join::OnAllJoined(const Message& message) {
  abort_at_ = kNever;
  joined_.clear();
  said_ = false;
  if (join_ == nullptr) return;
  join_->rows = {message.peer};
  ended_.push_back({std::exchange(join_, nullptr), Status::Ok()});
}

Request* Join::OnShadow(const Message& message, const Negotiator& negotiator, Time now) {
  if (join_ == nullptr || message.id.group != 0 || message.entry != drops_) return nullptr;
  if (const Stream* stream = negotiator.streams().Find(message.id); stream != nullptr) {
    const size_t submitted = stream->occurrence + (stream->waiting.size() - stream->head);
    // agree-N10: two leaders may tell of one occurrence; this rank takes part once.
    if (message.id.occurrence < submitted) return nullptr;
  }
  const Signature& signature = message.signature;
  ProxyRequest& proxy = *proxies_.emplace_back(std::make_unique<ProxyRequest>());
  Request& request = proxy.request;
  request.kind = signature.kind;
  request.group = join_->group;
  request.name = message.id.stream;
  request.op = signature.op;
  request.average = signature.average;
  request.root = signature.root;
  request.prescale = signature.prescale;
  request.postscale = signature.postscale;
  request.codec = signature.codec;
  request.form = signature.form;
  request.feeds_back = signature.feeds_back;
  request.submitted_at = now;
  request.is_proxy = true;
  // agree-N10: only a user can receive such a result: the operation is an error on all ranks.
  if (!CanTakePart(signature))
    request.refusal = Status::Unsupported(
        "rank " + std::to_string(ToInt(self_)) +
        " has joined (it has no more data): until all ranks have, only barrier and allreduce on "
        "the CPU, without a prescale factor or a codec for other than a sum, are possible");
  if (request.refusal.ok()) {
    proxy.memory.resize(signature.LengthBytes());
    // agree-N10: the operation's own identity: a zero would change a product, a minimum, a maximum.
    FillIdentity(signature.dtype, signature.op, proxy.memory);
  }
  size_t offset = 0;
  for (const Shape& shape : signature.shapes) {
    Tensor tensor{.dtype = signature.dtype, .shape = shape, .device = signature.device};
    if (request.refusal.ok()) tensor.data = proxy.memory.data() + offset;
    offset += tensor.LengthBytes();
    request.inputs.push_back(tensor);
  }
  request.outputs = request.inputs;
  return &request;
}

void Join::OnProxyEnded(Request* proxy) {
  std::erase_if(proxies_, [proxy](const auto& own) { return &own->request == proxy; });
}

void Join::OnLoss(const Status& why, Time now) {
  // agree-N10: at once, if this rank has not joined; else the end of the join may be under way.
  if (!said_) return Abort(why);
  if (aborted_.ok()) aborted_ = why;
  abort_at_ = std::min(abort_at_, now + kLastWords);
}

void Join::Abort(const Status& why) {
  if (aborted_.ok()) aborted_ = why;
  abort_at_ = kNever;
  joined_.clear();
  said_ = false;
  if (join_ == nullptr) return;
  ended_.push_back(
      {std::exchange(join_, nullptr), Status(why.code(), "join: " + why.message(), why.peer())});
}

}  // namespace covey
