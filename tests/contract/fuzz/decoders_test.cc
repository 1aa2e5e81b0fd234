// Goal: whatever bytes come from outside, each decoder takes them or refuses them: no crash, no
// endless loop, no memory beyond what has come; what it takes is written and read the same again.
// Method: valid bytes of every kind, changed at random (fuzz.h).
#include <cstring>
#include <deque>

#include "core/agree/message.h"
#include "core/base/config.h"
#include "core/engine/far_window.h"
#include "core/gossip/far_pairs.h"
#include "core/replicated/channel_mux.h"
#include "core/replicated/fragmenter.h"
#include "core/replicated/private_blocks.h"
#include "core/replicated/replica_message.h"
#include "core/transport/mirrored.h"
#include "core/transport/private_atomics.h"
#include "tests/contract/fuzz/fuzz.h"

namespace covey {
namespace {

class DecodersTest : public FuzzTest {};

TEST_F(DecodersTest, ReplicaMessages) {
  const RoundMemory geometry({.size = 40, .hypers = 2}, RoundLayout({}, 64));
  const auto words = [&](uint64_t kinds) {
    std::vector<uint64_t> drawn;
    for (int i = 0; i < geometry.size(); ++i) drawn.push_back(i < 20 ? 7 : rng_.Below(kinds));
    return drawn;
  };
  std::vector<Bytes> valid;
  for (auto kind = static_cast<int>(ReplicaMessage::Kind::kRequestVote);
       kind <= static_cast<int>(ReplicaMessage::Kind::kPreVoteGranted); ++kind) {
    ReplicaMessage message{.term = 7, .executed = 8, .version = 9};
    message.kind = static_cast<ReplicaMessage::Kind>(kind);
    message.list = words(3);
    message.missing = words(1);
    message.roles = words(40);
    message.needs = message.mets = message.silences = words(~uint64_t{0});
    message.holders = {true, false, true};
    message.hypers = {0.5, -1};
    message.body = Bytes(geometry.record_bytes());
    message.Pack(geometry);
    valid.push_back(message.Encode());
  }
  uint64_t unpacked = 0;
  Run(valid, 100'000, [&](const Bytes& bytes) {
    ReplicaMessage read, again;
    if (!ReplicaMessage::Decode(bytes, &read)) return;
    const Bytes written = read.Encode();
    ASSERT_TRUE(ReplicaMessage::Decode(written, &again));
    EXPECT_EQ(again.Encode(), written);
    if (!read.Unpack(geometry)) return;
    ++unpacked;
    const ReplicaMessage first = read;
    if (read.list.empty()) return;
    // Packed and unpacked once more it says the same.
    read.Pack(geometry);
    EXPECT_LE(read.body.size(), ReplicaMessage::MostPackedBytes(geometry));
    ASSERT_TRUE(read.Unpack(geometry));
    EXPECT_TRUE(read.list == first.list && read.missing == first.missing &&
                read.roles == first.roles && read.needs == first.needs && read.mets == first.mets &&
                read.silences == first.silences);
    EXPECT_EQ(read.body, first.body);
  });
  EXPECT_GT(unpacked, 0u);
}

// Offers and answers between hosts, without a codec and with one of each kind: what is taken moves
// a model, what is not is counted.
TEST_F(DecodersTest, MessagesOfPairs) {
  const RoundSpan spans[] = {{DType::kF32, 40}, {DType::kF64, 3}};
  const RoundLayout layout(spans, 64);
  PairCodec alone;
  ASSERT_TRUE(ParseCodec("bf16", &alone.alone).ok());
  const PairCodec beside{.codec = FindReferenceCodec("lattice"), .values = {8}};
  for (const PairCodec& codec : {PairCodec{}, alone, beside}) {
    PairMemory memory(1, layout);
    PrivateBlocks blocks;
    memory.Map({blocks.Add(memory.BlockBytes())});
    PrivateAtomics words;
    Gossip gossip(0, &memory, &words, &BestKernels(), codec, Gossip::End::kElsewhere);
    FarPairs pairs(0, 2, &gossip, &layout, &BestKernels(), codec);
    const std::vector<float> floats(40);
    const std::vector<double> doubles(3);
    const void* const model[] = {floats.data(), doubles.data()};
    gossip.Begin(model);
    pairs.Begin();
    const Bytes trains = pairs.TakeMessages()[0].bytes;
    pairs.OnMessage(1, trains);
    ASSERT_EQ(pairs.Offer(1), Gossip::Outcome::kDone);
    const Bytes offer = pairs.TakeMessages()[0].bytes;
    Bytes taken = FarMessage{.kind = FarMessage::Kind::kTaken, .number = 1, .body = {}}.Head();
    taken.insert(taken.end(), offer.begin() + FarMessage::kHeadBytes, offer.end());
    const Bytes declined =
        FarMessage{.kind = FarMessage::Kind::kDeclined, .number = 1, .body = {}}.Head();
    const Bytes asks = FarMessage{.kind = FarMessage::Kind::kAsk, .body = {}}.Head();
    Bytes shows = FarMessage{.kind = FarMessage::Kind::kModel, .body = {}}.Head();
    shows.resize(shows.size() + layout.length_bytes());
    FarLooks::Model shown;
    Run({trains, offer, taken, declined, asks, shows}, 20'000, [&](const Bytes& bytes) {
      FarMessage read;
      const bool is_message = FarMessage::Decode(bytes, &read);
      const uint64_t before = pairs.counters().malformed;
      pairs.OnMessage(1, bytes);
      if (!is_message) {
        EXPECT_EQ(pairs.counters().malformed, before + 1);
      }
      if (rng_.Percent(20)) static_cast<void>(pairs.Offer(1));
      if (rng_.Percent(20)) static_cast<void>(pairs.Look(1, 0, &shown));
      pairs.TakeMessages();
    });
  }
}

// Questions and answers about models of other hosts.
TEST_F(DecodersTest, Looks) {
  constexpr size_t kLength = 64;
  MonotonicClock clock;
  Group group;
  group.members = {Rank{0}, Rank{1}};
  group.my_index = GroupIndex{0};
  const Bytes model(kLength);
  FarWindow window({.group = &group,
                    .channel = 1,
                    .kick = [] {},
                    .clock = &clock,
                    .model = model.data(),
                    .length_bytes = kLength});
  window.Show(1);
  const FarQuestion question{.wants_model = true};
  const Bytes asks =
      FarLook{.kind = FarLook::Kind::kAsk, .question = question, .answer = {}}.Head();
  Bytes answers = FarLook{.kind = FarLook::Kind::kAnswer,
                          .question = question,
                          .answer = {.state = WindowState::kWhole, .version = 2}}
                      .Head();
  answers.resize(answers.size() + kLength);
  Bytes seen(kLength);
  int64_t version = 0;
  // No message closes it: then nothing is asked any more.
  Run({asks, answers}, 20'000, [&](const Bytes& bytes) {
    FarLook look;
    if (FarLook::Decode(bytes, &look) && look.kind == FarLook::Kind::kClosed) return;
    window.OnMessage(1, Slice(bytes), 0);
    if (rng_.Percent(20)) static_cast<void>(window.Look(1, seen, &version));
    window.Advance(0, true);
  });
}

TEST_F(DecodersTest, Messages) {
  std::vector<Bytes> valid;
  for (int type = 0; type <= static_cast<int>(MessageType::kHere); ++type) {
    Message message{.type = static_cast<MessageType>(type)};
    message.id = {.group = 1, .stream = "stream", .occurrence = 2};
    message.ranks = {0, 1, 2};
    message.blocks = {64, 128};
    message.peers = {1, 2};
    message.text = "why";
    message.members = {{"a", 1, 2}, {"b", 3, 4}};
    valid.push_back(EncodeMessage(message));
    Message read;
    ASSERT_TRUE(DecodeMessage(valid.back(), &read)) << NameOf(message.type);
  }
  Run(valid, 100'000, [](const Bytes& bytes) {
    Message read, again;
    if (!DecodeMessage(bytes, &read)) return;
    const Bytes written = EncodeMessage(read);
    ASSERT_TRUE(DecodeMessage(written, &again));
    EXPECT_EQ(EncodeMessage(again), written);
  });
}

TEST_F(DecodersTest, Frames) {
  constexpr size_t kFrameBytes = 128, kLongest = 1000;
  Fragmenter writer(9, 2, kFrameBytes);
  for (int message = 0; message < 3; ++message) writer.Enqueue(1, Bytes(300));
  Bytes frame;
  Append(&frame, writer.Next(1));
  Fragmenter reader(9, 2, kFrameBytes);
  Run({frame}, 100'000, [&](const Bytes& bytes) {
    if (!Fragmenter::IsFrame(bytes)) return;
    Fragmenter::ChannelOf(bytes);
    Slice message;
    const size_t longest = rng_.Percent(50) ? kLongest : ~size_t{0};
    reader.OnFrame(0, bytes, longest, &message);
    EXPECT_LE(message.size(), 32 * kMostBytes);
    // A message that never ends takes as much as was sent; a peer's end forgets it.
    if (rng_.Percent(5)) reader.OnLoss(0);
    if (rng_.Percent(5)) reader = Fragmenter(9, 2, kFrameBytes);
    while (!reader.Next(0).empty()) reader.OnSent(0);
  });
}

// Hands over what the test puts into it; what is sent is kept in the last message.
class ToyLink final : public Link {
 public:
  explicit ToyLink(std::deque<Bytes>* in, Bytes* out) : in_(in), out_(out) {}
  Rank rank() const override { return Rank{0}; }
  int size() const override { return 2; }
  bool Send(Rank, std::span<const std::byte> message) override {
    out_->assign(message.begin(), message.end());
    return true;
  }
  bool Receive(Rank* from, std::span<const std::byte>* message) override {
    if (in_->empty()) return false;
    last_ = std::move(in_->front());
    in_->pop_front();
    *from = Rank{1};
    *message = last_;
    return true;
  }
  bool Flushed() override { return true; }
  std::vector<PeerLoss> PollLost() override { return {}; }

 private:
  std::deque<Bytes>* in_;
  Bytes* out_;
  Bytes last_;
};

TEST_F(DecodersTest, Mirrors) {
  constexpr uint64_t kArenaBytes = uint64_t{1} << 20;
  const Rank peer[] = {Rank{1}};
  std::deque<Bytes> in;
  Bytes out;
  const auto opened = [&] {
    std::unique_ptr<Transport> transport;
    EXPECT_TRUE(Mirrored::Open({.arena_bytes = kArenaBytes}, std::make_unique<ToyLink>(&in, &out),
                               &transport)
                    .ok());
    return transport;
  };
  std::unique_ptr<Transport> transport = opened();
  std::vector<Bytes> valid{out};  // the greeting
  std::byte* base = transport->Base(Rank{0});
  std::memset(base + 4096, 7, 300);
  ASSERT_TRUE(transport->TrySend(Rank{1}, BytesOf("mail")));
  valid.push_back(out);
  transport->StoreRelease(reinterpret_cast<uint64_t*>(base + 8192), 5);
  transport->Push(peer, base + 4096, 300);
  transport->Wake(peer);
  valid.push_back(out);
  Run(
      valid, 10'000,
      [&](const Bytes& bytes) {
        in.push_back(bytes);
        Rank from = kNoRank;
        Bytes message;
        while (transport->TryReceive(&from, &message)) EXPECT_LE(message.size(), bytes.size());
        if (transport->PollPeers().empty()) return;
        // Nothing of a peer that was malformed counts any more.
        in.push_back(valid[1]);
        EXPECT_FALSE(transport->TryReceive(&from, &message));
        transport = opened();
      },
      kArenaBytes);
}

// Of channels that nobody has opened here a peer can make this rank keep so much and no more.
TEST_F(DecodersTest, FramesOfManyChannels) {
  std::deque<Bytes> in;
  Bytes out;
  std::unique_ptr<Transport> transport;
  ASSERT_TRUE(
      Mirrored::Open({.arena_bytes = 1 << 20}, std::make_unique<ToyLink>(&in, &out), &transport)
          .ok());
  ChannelMux box(transport.get());
  int kept = 0;
  for (uint64_t channel = 1; channel <= 10'000; ++channel) {
    Fragmenter writer(channel, 2, 128);
    writer.Enqueue(0, Bytes(10));
    Bytes frame;
    Append(&frame, writer.Next(0));
    if (box.OnFrame(Rank{1}, frame, 0)) ++kept;
    if (channel == 1) {
      EXPECT_TRUE(box.OnFrame(Rank{1}, frame, 0));
    }
  }
  EXPECT_EQ(kept, 256);
}

TEST_F(DecodersTest, Settings) {
  const std::vector<std::string> lines = {"COVEY_RANK=1",
                                          "COVEY_SIZE=4",
                                          "COVEY_START_TIMEOUT=30s",
                                          "COVEY_SPIN=20us",
                                          "COVEY_ARENA_BYTES=16GiB",
                                          "COVEY_ALGORITHM=ring",
                                          "COVEY_METHOD=eager:admit=0.5,grace=0s",
                                          "COVEY_LOG_LEVEL=debug",
                                          "COVEY_RECHECK=1s",
                                          "HOROVOD_FUSION_THRESHOLD=67108864",
                                          "HOROVOD_TIMELINE=/tmp/x",
                                          "HOROVOD_RANK=1"};
  std::vector<Bytes> valid;
  for (const std::string& line : lines) valid.push_back(BytesOf(line));
  Run(valid, 20'000, [](const Bytes& bytes) {
    const std::string variable = TextOf(bytes), settings = variable;
    const char* const environment[] = {variable.c_str(), nullptr};
    Config config;
    for (const std::string_view text : {std::string_view(), std::string_view(settings)}) {
      const Status read =
          Config::FromEnvironment(text.empty() ? environment : nullptr, text, &config);
      if (read.ok()) {
        EXPECT_LT(ToInt(config.rank), config.size);
        EXPECT_LT(config.local_rank, config.local_size);
      } else {
        EXPECT_EQ(read.code(), StatusCode::kInvalidArgument);
        EXPECT_LE(read.message().size(), 4 * kMostBytes);
      }
    }
  });
}

}  // namespace
}  // namespace covey
