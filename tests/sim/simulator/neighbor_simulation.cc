#include "tests/sim/simulator/neighbor_simulation.h"

#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "core/base/channel.h"
#include "core/base/neighbor_weights.h"
#include "core/engine/runtime.h"
#include "core/plan/selector.h"
#include "core/run/codec.h"
#include "core/transport/mirrored.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/mail_link.h"

namespace covey {
namespace {

constexpr size_t kMirrorBytes = 4 << 20;
constexpr int kMostSteps = 400'000;  // of one round
constexpr float kUnwritten = -7;
constexpr size_t kStreams = 2;
// Of the streams. The draw of the last one is not known here: there all inputs are equal.
constexpr const char* kCodecs[] = {"", "", "", "bf16", "int8@block=16", "qsgd@block=16"};

struct Node {
  TensorQueue queue;
  std::unique_ptr<Log> log;
  std::unique_ptr<Transport> mirrored;
  std::unique_ptr<Runtime> runtime;
  Group group;
};

// The part of one rank in one occurrence of a stream.
struct Share {
  std::vector<double> weights;  // by rank
  std::vector<bool> sends;      // by rank
  bool is_open = false;         // to all that take
  bool in_place = false;
  Status refusal;
  std::vector<float> input, before, output;
  Operation* operation = nullptr;
};

enum class Fate : uint8_t { kAgrees, kConflict, kRefused };

class Job {
 public:
  Job(uint64_t seed, int32_t ranks) : rng_(seed * 7919 + 1) {
    size_ = ranks > 0 ? ranks : 1 + static_cast<int32_t>(rng_.Below(7));
    mirrored_ = rng_.Percent(40);
    segment_bytes_ = rng_.Percent(50) ? 64 : 1024;
    dies_ = size_ > 1 && rng_.Percent(20);
    verdict_.swarm = std::to_string(size_) + " ranks" + (mirrored_ ? ", mirrored" : "") +
                     (dies_ ? ", one dies" : "");
    verdict_.mirrored = mirrored_;
    network_ = std::make_unique<InprocNetwork>(
        InprocNetwork::Options{.size = size_, .seed = seed, .region_bytes = 8 << 20});
    for (int32_t r = 0; r < size_; ++r) AddNode(r);
    for (size_t s = 0; s < kStreams; ++s) {
      elems_.push_back(rng_.Percent(15) ? 0 : 1 + rng_.Below(rng_.Percent(40) ? 900 : 40));
      const char* codec = kCodecs[(seed + s) % std::size(kCodecs)];
      if (*codec != '\0') Fail(ParseCodec(codec, &codecs_[s]).message());
    }
  }

  NeighborVerdict Run() {
    const uint64_t rounds = 3 + rng_.Below(6);
    for (uint64_t round = 0; round < rounds && verdict_.failure.empty(); ++round) {
      const bool last = dies_ && round + 1 == rounds;
      RunRound(round, last);
    }
    return verdict_;
  }

 private:
  void AddNode(int32_t r) {
    Node& node = *nodes_.emplace_back(std::make_unique<Node>());
    node.log = std::make_unique<Log>(LogLevel::kOff, Rank{r});
    if (mirrored_)
      Fail(Mirrored::Open({.arena_bytes = kMirrorBytes, .put_bytes = 64},
                          std::make_unique<MailLink>(network_.get(), Rank{r}), &node.mirrored)
               .message());
    for (int32_t m = 0; m < size_; ++m) node.group.members.push_back(Rank{m});
    node.group.my_index = GroupIndex{r};
    node.runtime = std::make_unique<Runtime>(
        Runtime::Options{.segment_bytes = segment_bytes_,
                         .agreed_text = "",
                         .selector = {},
                         .plan = Plan,
                         .kernels = &BestKernels(),
                         .clock = &network_->clock(),
                         .log = node.log.get()},
        mirrored_ ? node.mirrored.get() : &network_->transport(Rank{r}), &node.queue);
  }

  Node& At(int32_t r) { return *nodes_[static_cast<size_t>(r)]; }
  void Fail(const std::string& text) {
    if (verdict_.failure.empty()) verdict_.failure = text;
  }

  // Rows that agree with each other.
  std::vector<Share> Draw(size_t stream) {
    const auto n = static_cast<size_t>(size_);
    std::vector<Share> shares(n);
    const bool dense = rng_.Percent(30);
    for (size_t i = 0; i < n; ++i) {
      Share& s = shares[i];
      s.weights.assign(n, 0);
      for (size_t j = 0; j < n; ++j)
        if (i != j && rng_.Percent(dense ? 80 : 35))
          s.weights[j] = static_cast<double>(1 + rng_.Below(40)) / 64 - 0.25;
      s.weights[i] = rng_.Percent(15) ? 0 : static_cast<double>(1 + rng_.Below(9)) / 8;
      bool takes = false;
      for (const double weight : s.weights) takes |= weight != 0;
      if (!takes) s.weights[i] = 1;
      s.is_open = rng_.Percent(20);
      s.in_place = rng_.Percent(40);
      for (size_t e = 0; e < elems_[stream]; ++e)
        s.input.push_back(static_cast<float>(rng_.Below(1'000'000)) / 1024);
      if (i > 0 && IsAlike(stream)) s.input = shares[0].input;
      s.before = s.input;
      s.output.assign(elems_[stream], kUnwritten);
    }
    for (size_t j = 0; j < n; ++j) {
      bool read = false;
      for (size_t i = 0; i < n; ++i) {
        shares[j].sends.push_back(i != j && shares[i].weights[j] != 0);
        read |= shares[j].sends.back();
      }
      verdict_.unread += !read && n > 1;
      verdict_.open += shares[j].is_open;
    }
    return shares;
  }

  bool IsAlike(size_t stream) const {
    return codecs_[stream].codec != nullptr && codecs_[stream].Draws();
  }

  // A rank says something else than another, or something refused. kAgrees: no rank can.
  Fate Spoil(std::vector<Share>* shares, std::string* named) {
    const size_t n = shares->size();
    const size_t who = rng_.Below(n);
    Share& one = (*shares)[who];
    if (rng_.Percent(40)) {
      *named = "rank " + std::to_string(who) + "'s row";
      one.refusal = Status::Mismatch(*named, Rank{static_cast<int32_t>(who)});
      return Fate::kRefused;
    }
    const size_t other = rng_.Below(n);
    if (who == other || one.is_open) return Fate::kAgrees;
    one.sends[other] = !one.sends[other];
    *named = one.sends[other]
                 ? "rank " + std::to_string(who) + " sends to rank " + std::to_string(other) +
                       ", which does not take from rank " + std::to_string(who)
                 : "rank " + std::to_string(other) + " takes from rank " + std::to_string(who) +
                       ", which does not send to rank " + std::to_string(other);
    return Fate::kConflict;
  }

  void Submit(int32_t r, size_t stream, Share* s) {
    Node& node = At(r);
    const auto n = static_cast<size_t>(size_);
    const auto me = static_cast<size_t>(r);
    Operation* operation = node.queue.New();
    Request& request = *operation;
    request.kind = Kind::kNeighborAllreduce;
    request.group = &node.group;
    request.name = "stream " + std::to_string(stream);
    request.refusal = s->refusal;
    request.codec = codecs_[stream].text;
    request.form = codecs_[stream].form;
    request.peers = NewPeerTable(n, me);
    for (size_t j = 0; j < n; ++j) SetWeight(j, s->weights[j], &request.peers);
    for (size_t j = 0; j < n; ++j)
      if (s->is_open ? j == me : s->sends[j]) SetReceiver(n, j, &request.peers);
    Tensor tensor;
    tensor.shape.ndim = 1;
    tensor.shape.dims[0] = static_cast<int64_t>(s->input.size());
    tensor.data = reinterpret_cast<std::byte*>(s->input.data());
    request.inputs = {tensor};
    if (!s->in_place) tensor.data = reinterpret_cast<std::byte*>(s->output.data());
    request.outputs = {tensor};
    uint64_t handle = 0;
    if (const Status status = node.queue.Submit(operation, &handle); !status.ok())
      return Fail("not queued: " + status.message());
    s->operation = operation;
  }

  bool Step(const std::vector<Share*>& open) {
    for (int step = 0; step < kMostSteps; ++step) {
      bool all = true;
      for (const Share* s : open) all &= s->operation->ended.load();
      if (all) return true;
      const auto r = static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(size_)));
      network_->clock().Advance(static_cast<Time>(rng_.Below(20 * kMicrosecond)));
      bool moved = false;
      if (!network_->IsDead(Rank{r})) At(r).runtime->RunOnce(&moved);
    }
    return false;
  }

  void RunRound(uint64_t round, bool dies) {
    std::vector<std::vector<Share>> all;
    std::vector<Fate> fates(kStreams, Fate::kAgrees);
    std::vector<std::string> named(kStreams);
    for (size_t s = 0; s < kStreams; ++s) {
      all.push_back(Draw(s));
      if (!dies && rng_.Percent(25)) fates[s] = Spoil(&all[s], &named[s]);
    }
    const uint64_t announced = At(0).runtime->negotiator().announced();
    const int32_t victim = dies ? static_cast<int32_t>(rng_.Below(uint64_t(size_))) : -1;
    std::vector<Share*> open;
    for (int32_t r = 0; r < size_; ++r) {
      for (size_t s = 0; s < kStreams; ++s) {
        if (r == victim && rng_.Percent(50)) continue;  // it never comes to it
        Share& share = all[s][static_cast<size_t>(r)];
        Submit(r, s, &share);
        if (r != victim) open.push_back(&share);
        Stir(rng_.Below(6));
      }
    }
    if (dies) {
      Stir(rng_.Below(60));
      network_->Kill(Rank{victim}, "has died");
    }
    if (!verdict_.failure.empty()) return;
    if (!Step(open)) return Fail("round " + std::to_string(round) + " does not end");
    for (size_t s = 0; s < kStreams; ++s) Check(s, all[s], fates[s], named[s], victim);
    for (std::vector<Share>& shares : all)
      for (int32_t r = 0; r < size_; ++r) Release(r, shares[static_cast<size_t>(r)]);
    bool is_steady = !dies;
    for (size_t s = 0; s < kStreams; ++s) {
      is_steady &= known_[s] && fates[s] == Fate::kAgrees;
      known_[s] |= fates[s] == Fate::kAgrees;
    }
    if (is_steady && At(0).runtime->negotiator().announced() != announced)
      Fail("a steady round asked the coordinator");
  }

  // The input: its memory is free.
  void Release(int32_t r, const Share& s) {
    if (s.operation != nullptr) At(r).queue.Release(s.operation->handle);
  }

  // Some passes of any ranks.
  void Stir(uint64_t passes) {
    for (; passes > 0; --passes) {
      const auto r = static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(size_)));
      network_->clock().Advance(static_cast<Time>(rng_.Below(20 * kMicrosecond)));
      bool moved = false;
      if (!network_->IsDead(Rank{r})) At(r).runtime->RunOnce(&moved);
    }
  }

  void Check(size_t stream, const std::vector<Share>& shares, Fate fate, const std::string& named,
             int32_t dead) {
    for (size_t i = 0; i < shares.size(); ++i) {
      const Share& s = shares[i];
      if (static_cast<int32_t>(i) == dead) continue;
      const Status& status = s.operation->status;
      const std::string who = "rank " + std::to_string(i) + ": ";
      verdict_.hash = verdict_.hash * 31 + static_cast<uint64_t>(status.code());
      if (dead >= 0 && status.code() == StatusCode::kAborted) {
        ++verdict_.aborted;
        continue;
      }
      if (fate != Fate::kAgrees) {
        ++(fate == Fate::kConflict ? verdict_.conflicts : verdict_.refused);
        if (status.code() != StatusCode::kMismatch ||
            status.message().find(named) == std::string::npos)
          Fail(who + "'" + status.ToString() + "' instead of '" + named + "'");
        const std::vector<float> left(s.output.size(), kUnwritten);
        if (s.input != s.before || s.output != left) Fail(who + "memory of what failed is written");
        continue;
      }
      if (!status.ok()) return Fail(who + status.message());
      ++verdict_.done;
      const ChosenCodec& codec = codecs_[stream];
      verdict_.coded += codec.codec != nullptr;
      const std::vector<float> wanted = IsAlike(stream)          ? s.before
                                        : codec.codec != nullptr ? Mixed(shares, i, codec)
                                                                 : Expected(shares, i);
      const std::vector<float>& got = s.in_place ? s.input : s.output;
      if (!wanted.empty() &&
          std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)) != 0)
        Fail(who + "the sum is wrong");
      if (!s.in_place && s.input != s.before) Fail(who + "the input is written");
    }
  }

  // Moved by the differences of what the codec makes of it and of those it takes from.
  static std::vector<float> Mixed(const std::vector<Share>& shares, size_t i,
                                  const ChosenCodec& codec) {
    const std::vector<float> own = RoundTrip(codec, shares[i].before);
    std::vector<float> moved(own.size());
    for (size_t j = 0; j < shares.size(); ++j) {
      const auto weight = static_cast<float>(shares[i].weights[j]);
      if (j == i || weight == 0) continue;
      const std::vector<float> theirs = RoundTrip(codec, shares[j].before);
      for (size_t e = 0; e < moved.size(); ++e) moved[e] += weight * (theirs[e] - own[e]);
    }
    for (size_t e = 0; e < moved.size(); ++e) moved[e] += shares[i].before[e];
    return moved;
  }

  static std::vector<float> RoundTrip(const ChosenCodec& codec, const std::vector<float>& from) {
    std::vector<std::byte> code(codec.form.EncodedBytes(from.size()));
    codec.codec->encode(ScalarKernels(), codec.values, from, 0, code.data());
    std::vector<float> decoded(from.size());
    codec.codec->decode(ScalarKernels(), codec.values, code.data(), decoded);
    return decoded;
  }

  static std::vector<float> Expected(const std::vector<Share>& shares, size_t i) {
    std::vector<float> sum(shares[i].before.size());
    for (size_t e = 0; e < sum.size(); ++e) {
      bool first = true;
      for (size_t j = 0; j < shares.size(); ++j) {
        const double weight = shares[i].weights[j];
        if (weight == 0) continue;
        const float term = shares[j].before[e] * static_cast<float>(weight);
        sum[e] = first ? term : sum[e] + term;
        first = false;
      }
    }
    return sum;
  }

  Rng rng_;
  int32_t size_ = 1;
  bool mirrored_ = false;
  bool dies_ = false;
  size_t segment_bytes_ = 64;
  std::vector<size_t> elems_;                 // by stream
  std::array<ChosenCodec, kStreams> codecs_;  // theirs
  std::array<bool, kStreams> known_ = {};     // it has been agreed on
  std::unique_ptr<InprocNetwork> network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  NeighborVerdict verdict_;
};

}  // namespace

NeighborVerdict RunNeighbors(uint64_t seed, int32_t ranks) { return Job(seed, ranks).Run(); }

}  // namespace covey
