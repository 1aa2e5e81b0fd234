#include "tests/sim/simulator/swarm.h"

#include <algorithm>
#include <iterator>

namespace covey {
namespace {

template <typename T, size_t n>
T Pick(Rng* rng, const T (&choices)[n]) {
  return choices[rng->Below(n)];
}

void DrawJob(Rng* rng, Swarm* s) {
  s->size = Pick<int32_t>(rng, {1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 8});
  s->segment_bytes = Pick<size_t>(rng, {64, 64, 256, 4096});
  s->flat_bytes = Pick<size_t>(rng, {0, 128, 1024});
  s->algorithm =
      Pick<const char*>(rng, {"auto", "auto", "auto", "flat", "staged", "direct", "ring", "read"});
  if (rng->Percent(20)) s->blind_ranks = rng->Below(256);
  s->mirrored = rng->Percent(30);
  s->fusion_bytes = Pick<size_t>(rng, {0, 300, 4096, 1 << 20});
  s->fusion_window = Pick<Time>(rng, {kMicrosecond, kMillisecond, kSecond});
  s->stall_warning = Pick<Time>(rng, {0, 200 * kMillisecond, 10 * kSecond});
}

void DrawProgram(Rng* rng, Swarm* s) {
  s->training = rng->Percent(40);
  s->streams = 1 + rng->Below(8);
  s->ops = 10 + rng->Below(rng->Percent(10) ? 200 : 50);
  s->window = 1 + rng->Below(8);
  s->change_percent = Pick<uint64_t>(rng, {0, 0, 5, 20, 50});
  s->odd_percent = Pick<uint64_t>(rng, {0, 0, 5, 20});
  s->wait_percent = Pick<uint64_t>(rng, {0, 10, 50, 100});
  s->think_percent = Pick<uint64_t>(rng, {0, 0, 10});
  s->leaving = rng->Percent(30);
  s->coding = rng->Percent(25);
  s->joining = rng->Percent(25);
}

void DrawTime(Rng* rng, Swarm* s) {
  s->step = Pick<Time>(rng, {kMicrosecond, 20 * kMicrosecond, kMillisecond});
  s->message_delay =
      Pick<Time>(rng, {kMicrosecond, 100 * kMicrosecond, kMillisecond, 100 * kMillisecond});
  s->store_delay = Pick<Time>(rng, {0, 0, kMicrosecond, 100 * kMicrosecond, kMillisecond});
  s->news_delay = Pick<Time>(rng, {0, kMillisecond, kSecond});
  s->switch_permille = Pick<uint64_t>(rng, {0, 10, 50, 200, 500});
  s->looks = Pick<int32_t>(rng, {0, 1, 4});
  if (rng->Percent(30)) s->slow_ranks = rng->Below(256);
}

void DrawFaults(Rng* rng, Swarm* s) {
  s->mailbox_messages = Pick<size_t>(rng, {1, 2, 4, 64, 64});
  if (rng->Percent(30)) s->refusal_percent = 1 + rng->Below(50);
  if (rng->Percent(30)) s->clog_percent = 1 + rng->Below(5);
  if (rng->Percent(25)) s->pauses_ppm = 20 + rng->Below(1000);
  if (rng->Percent(40)) {
    s->kills_ppm = 20 + rng->Below(rng->Percent(50) ? 200 : 3000);
    s->most_kills = 1 + static_cast<int32_t>(rng->Below(static_cast<uint64_t>(s->size)));
  }
  if (rng->Percent(20)) s->region_bytes = 512 + rng->Below(rng->Percent(50) ? 3000 : 16000);
}

void SetFocus(Focus focus, Rng apart, Swarm* s) {
  if (focus == Focus::kNone) return;
  if (focus == Focus::kJoins) {
    s->size = std::max(s->size, 3);
    s->joining = true;
    s->most_kills = 0;
    return;
  }
  if (focus == Focus::kNames) {
    s->retire = {.patience = 1 + apart.Below(4), .batch = 1 + apart.Below(2)};
    s->mirrored = false;  // which gives nothing back
    s->joining = apart.Percent(30);
    s->fusion_bytes = apart.Percent(60) ? 1 << 20 : 0;
    s->fusion_window = kSecond;
    s->streams = 6 + apart.Below(12);
    s->ops = 80;
    s->odd_percent = std::min<uint64_t>(s->odd_percent, 5);
    if (s->joining) s->most_kills = 0;
    return;
  }
  if (focus == Focus::kRepeats) {
    s->repeats = true;
    s->algorithm = "auto";
    s->flat_bytes = Pick<size_t>(&apart, {128, 1024});  // what is longer is no small sum
    s->segment_bytes = 4096;
    s->fusion_bytes = apart.Percent(40) ? 1 << 20 : 0;
    s->fusion_window = kSecond;
    s->mirrored = false;  // whose ranks share no memory
    s->training = false;
    s->streams = 1 + apart.Below(4);
    s->ops = 60;
    s->window = 1 + apart.Below(3);
    s->wait_percent = Pick<uint64_t>(&apart, {20, 60, 100, 100});
    if (s->joining) s->most_kills = 0;
    s->change_percent = std::min<uint64_t>(s->change_percent, 20);
    if (apart.Percent(30)) s->retire = {.patience = 1 + apart.Below(4), .batch = 1};
    return;
  }
  if (focus == Focus::kReports) {
    s->stall_warning = 200 * kMillisecond;
    s->mailbox_messages = 2;
    s->clog_percent = 5;
    s->mirrored = false;  // whose links have no mailbox
    return;
  }
  s->size = std::max(s->size, 3);
  s->kills_ppm = std::max<uint64_t>(s->kills_ppm, 500);
  s->most_kills = std::max(s->most_kills, 1);
  if (focus == Focus::kAgreed) s->change_percent = 50;
  if (focus == Focus::kAgreed) s->clog_percent = 5;
  if (focus == Focus::kDirect) s->algorithm = "direct";
  if (focus == Focus::kDirect) s->mirrored = false;
}

}  // namespace

Focus FocusNamed(std::string_view name) {
  constexpr std::string_view kNames[] = {"none",    "losses", "agreed", "direct",
                                         "reports", "joins",  "names",  "repeats"};
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  return found == std::end(kNames) ? Focus::kNone : static_cast<Focus>(found - kNames);
}

Swarm Swarm::Draw(Rng* rng, Focus focus) {
  Swarm s;
  DrawJob(rng, &s);
  DrawProgram(rng, &s);
  DrawTime(rng, &s);
  DrawFaults(rng, &s);
  SetFocus(focus, *rng, &s);  // a copy: the draw stays what it is
  s.device_delay = Pick<Time>(
      rng, {0, 0, 0, 0, 10 * kMicrosecond, 100 * kMicrosecond, kMillisecond, 10 * kMillisecond});
  if (s.joining) s.device_delay = 0;  // a rank that has joined has no memory of a device
  s.landing_bytes = Pick<uint64_t>(rng, {0, 0, 0, 300, 3000});
  if (s.device_delay > 0) {
    s.device_memory = Pick<size_t>(rng, {0, 40 << 10, 80 << 10, 200 << 10, 64 << 20, 64 << 20});
    s.opens_nothing = Pick<int32_t>(rng, {-1, -1, -1, -1, 0, 1});
  }
  if (s.mirrored) {  // where every tick is a message
    s.segment_bytes = std::max<size_t>(s.segment_bytes, 256);
    s.ops = std::min<size_t>(s.ops, 30);
    s.message_delay = std::min<Time>(s.message_delay, kMillisecond);
    s.per_host = Pick<int32_t>(rng, {1, 1, 2, 2, 3, 4});
    if (s.per_host >= s.size) s.per_host = 1;
  }
  return s;
}

std::string Swarm::ToString() const {
  std::string text = algorithm;
  const auto say = [&](const char* what, uint64_t value) {
    text += std::string(", ") + what + " " + std::to_string(value);
  };
  const auto say_time = [&](const char* what, Time value) {
    text += std::string(", ") + what + " " + std::to_string(value / kMicrosecond) + " us";
  };
  say("ranks", static_cast<uint64_t>(size));
  say("segment bytes", segment_bytes);
  say("landing bytes", landing_bytes);
  say("blind ranks", blind_ranks);
  say("mirrored", mirrored);
  say("ranks per host", static_cast<uint64_t>(mirrored ? per_host : size));
  say("fusion bytes", fusion_bytes);
  say_time("window", fusion_window);
  say("patience", retire.patience);
  say("training", training);
  say("streams", streams);
  say("ops", ops);
  say("ahead", window);
  say("change %", change_percent);
  say("odd %", odd_percent);
  say("wait %", wait_percent);
  say("leaving", leaving);
  say("coding", coding);
  say("joining", joining);
  say("repeats", repeats);
  say_time("device", device_delay);
  if (device_memory > 0) say("device_memory", device_memory);
  if (opens_nothing >= 0) say("opens_nothing", static_cast<uint64_t>(opens_nothing));
  say_time("step", step);
  say_time("messages", message_delay);
  say_time("stores", store_delay);
  say_time("news", news_delay);
  say("switch per mille", switch_permille);
  say("slow ranks", slow_ranks);
  say("mailbox", mailbox_messages);
  say("refused %", refusal_percent);
  say("clogged %", clog_percent);
  say("pauses ppm", pauses_ppm);
  say("kills ppm", kills_ppm);
  say("region bytes", region_bytes);
  return text;
}

}  // namespace covey
