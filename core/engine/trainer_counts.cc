#include "core/engine/trainer_counts.h"

#include <iterator>
#include <span>
#include <utility>

namespace covey {
namespace {

constexpr uint64_t kAgeEnds[] = {0, 1, 2, 4, 8, 16};
static_assert(std::size(kAgeEnds) + 1 == TrainerCounts::kAges);

size_t AgeOf(uint64_t version, uint64_t step) {
  const uint64_t age = version > step ? version - step : 0;
  size_t i = 0;
  while (i < std::size(kAgeEnds) && age > kAgeEnds[i]) ++i;
  return i;
}

void Append(const char* name, std::span<const uint64_t> counts, std::string* json) {
  *json += std::string(",\"") + name + "\":[";
  for (size_t i = 0; i < counts.size(); ++i)
    *json += (i > 0 ? "," : "") + std::to_string(counts[i]);
  *json += ']';
}

}  // namespace

void TrainerCounts::AddVersion(uint64_t version, const std::vector<Contribution>& contributions) {
  ++versions;
  for (size_t i = 0; i < contributions.size(); ++i) {
    const Contribution& it = contributions[i];
    if (it.count == 0) continue;
    fresh[i] += it.last >= version ? 1 : 0;
    for (uint64_t step = it.first; step <= it.last; ++step) ++staleness[AgeOf(version, step)];
  }
}

TrainerCounts& TrainerCounts::operator+=(const TrainerCounts& more) {
  versions += more.versions;
  memory.exchange += more.memory.exchange;
  memory.rounds += more.memory.rounds;
  memory.pairs += more.memory.pairs;
  memory.arrays += more.memory.arrays;
  memory.codec += more.memory.codec;
  published += more.published;
  begun += more.begun;
  snapshots += more.snapshots;
  met += more.met;
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i] += more.fresh[i];
  for (size_t i = 0; i < overdue.size(); ++i) overdue[i] += more.overdue[i];
  for (size_t i = 0; i < kAges; ++i) staleness[i] += more.staleness[i];
  return *this;
}

std::string TrainerCounts::Json(const std::string& steps) const {
  std::string json = "{" + steps + ",\"versions\":" + std::to_string(versions);
  Append("fresh", fresh, &json);
  Append("overdue", overdue, &json);
  Append("missing", missing, &json);
  Append("staleness", staleness, &json);
  const std::pair<const char*, size_t> parts[] = {{"exchange", memory.exchange},
                                                  {"rounds", memory.rounds},
                                                  {"pairs", memory.pairs},
                                                  {"arrays", memory.arrays},
                                                  {"codec", memory.codec}};
  json += ",\"memory_bytes\":{";
  for (const auto& [name, bytes] : parts)
    json += (json.back() == '{' ? "\"" : ",\"") + std::string(name) + "\":" + std::to_string(bytes);
  json += '}';
  return json + ",\"published\":" + std::to_string(published) +
         ",\"snapshots\":" + std::to_string(snapshots) + ",\"made\":" + std::to_string(made) +
         ",\"copied\":" + (is_copied ? "1" : "0") + ",\"begun\":" + std::to_string(begun) +
         ",\"met\":" + std::to_string(met) + "}";
}

}  // namespace covey
