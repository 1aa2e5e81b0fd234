#include "tests/sim/transcripts/stage.h"

#include <algorithm>
#include <sstream>

#include "core/base/neighbor_weights.h"

namespace covey {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// The value of NAME=value among the words.
std::string Option(const std::vector<std::string>& words, const std::string& name,
                   const std::string& otherwise) {
  for (const std::string& word : words)
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return otherwise;
}

template <typename Enum>
Enum Named(const std::string& text, int count) {
  for (int i = 0; i < count; ++i)
    if (text == NameOf(static_cast<Enum>(i))) return static_cast<Enum>(i);
  return static_cast<Enum>(count);
}

std::string Text(Rank r) { return std::to_string(ToInt(r)); }

std::string Text(const Signature& s) {
  std::string text = NameOf(s.kind);
  if (!HasTensors(s.kind)) return text;
  text += std::string(" ") + NameOf(s.dtype);
  for (const Shape& shape : s.shapes) text += " " + ToString(shape);
  if (s.kind == Kind::kAllreduce) text += std::string(" ") + NameOf(s.op);
  if (s.kind == Kind::kBroadcast) text += " root " + Text(s.root);
  return text;
}

// The fields of a message beyond its type and operation.
std::string Content(const Message& m) {
  std::string text;
  if (m.type == MessageType::kAnnounce) return " " + Text(m.signature);
  if (m.entry != 0) text += " entry " + std::to_string(m.entry);
  for (const PlanMember& member : m.members)
    text += " " + (member.stream.empty() ? "-" : member.stream) + "." +
            std::to_string(member.occurrence);
  if (!m.ranks.empty()) text += " ranks";
  for (int32_t r : m.ranks) text += " " + std::to_string(r);
  if (!m.text.empty()) text += ": " + m.text;
  return text;
}

template <typename T>
std::string Values(const std::byte* data, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    std::ostringstream value;
    value << reinterpret_cast<const T*>(data)[i];
    text += (i > 0 ? " " : "") + value.str();
  }
  return "[" + text + "]";
}

std::string Values(DType dtype, const std::byte* data, size_t count) {
  if (dtype == DType::kF64) return Values<double>(data, count);
  if (dtype == DType::kI32) return Values<int32_t>(data, count);
  return Values<float>(data, count);
}

void Fill(const Tensor& t, int32_t value) {
  for (int64_t i = 0; i < t.shape.Elems(); ++i) {
    if (t.dtype == DType::kF64) reinterpret_cast<double*>(t.data)[i] = value;
    if (t.dtype == DType::kI32) reinterpret_cast<int32_t*>(t.data)[i] = value;
    if (t.dtype == DType::kF32) reinterpret_cast<float*>(t.data)[i] = static_cast<float>(value);
  }
}

}  // namespace

struct Stage::Node {
  explicit Node(Rank rank) : log(LogLevel::kOff, rank) {}

  Log log;
  TensorQueue queue;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::map<std::string, Operation*> last;  // by name as written
  std::unique_ptr<Runtime> runtime;
};

Stage::Stage() = default;
Stage::~Stage() = default;

std::vector<std::string> Stage::Do(const std::string& command) {
  lines_.clear();
  const Words words = Split(command, ' ');
  const std::string verb = words.empty() ? "" : words[0];
  const auto is = [&](const char* name, size_t count) {
    return verb == name && words.size() >= count && (verb == "ranks" || network_ != nullptr);
  };
  if (is("ranks", 2)) {
    Ranks(words);
  } else if (is("group", 3)) {
    DefineGroup(words);
  } else if (is("submit", 5)) {
    Submit(words);
  } else if (is("step", 2)) {
    for (int32_t r : RanksOf(words[1])) Settle(r);
  } else if (is("pass", 2)) {
    for (int32_t r : RanksOf(words[1])) Pass(r);
  } else if (is("run", 1)) {
    Run();
  } else if (is("wait", 3)) {
    Wait(words);
  } else if (is("hold", 3) || is("release", 3)) {
    network_->Hold(Rank{std::stoi(words[1])}, Rank{std::stoi(words[2])}, verb == "hold");
  } else if (is("kill", 2)) {
    network_->Kill(Rank{std::stoi(words[1])}, "has died");
  } else if (is("advance", 2)) {
    network_->clock().Advance(std::stoll(words[1]) * kMillisecond);
  } else {
    Say("(not understood)");
  }
  return lines_;
}

void Stage::Ranks(const Words& words) {
  const int32_t size = std::stoi(words[1]);
  const size_t segment_bytes = std::stoul(Option(words, "segment", "4096"));
  const FusionRules fusion{.threshold_bytes = std::stoul(Option(words, "fusion", "0")),
                           .window = kSecond};
  network_ = std::make_unique<InprocNetwork>(
      InprocNetwork::Options{.size = size, .in_rank_order = true, .longest_delay = 0});
  for (int32_t r = 0; r < size; ++r) {
    groups_[""].push_back(r);
    nodes_.push_back(std::make_unique<Node>(Rank{r}));
    nodes_.back()->runtime =
        std::make_unique<Runtime>(Runtime::Options{.segment_bytes = segment_bytes,
                                                   .fusion = fusion,
                                                   .kernels = &BestKernels(),
                                                   .clock = &network_->clock(),
                                                   .log = &nodes_.back()->log,
                                                   .observer = this},
                                  &network_->transport(Rank{r}), &nodes_.back()->queue);
  }
}

std::vector<int32_t> Stage::RanksOf(const std::string& text) const {
  std::vector<int32_t> ranks;
  if (text == "all") return groups_.at("");
  for (const std::string& part : Split(text, ',')) ranks.push_back(std::stoi(part));
  return ranks;
}

void Stage::DefineGroup(const Words& words) {
  std::vector<Rank> members;
  for (int32_t r : groups_[words[1]] = RanksOf(words[2])) members.push_back(Rank{r});
  group_names_[GroupKey(members)] = words[1];
}

void Stage::Submit(const Words& words) {
  for (int32_t r : RanksOf(words[1])) SubmitOn(r, words);
}

void Stage::SubmitOn(int32_t rank, const Words& words) {
  Node& node = *nodes_[static_cast<size_t>(rank)];
  auto group = std::make_unique<Group>();
  const std::vector<int32_t>& members = groups_.at(Option(words, "group", ""));
  for (size_t i = 0; i < members.size(); ++i) {
    group->members.push_back(Rank{members[i]});
    if (members[i] == rank) group->my_index = GroupIndex{static_cast<int32_t>(i)};
  }
  group->key = members.size() == nodes_.size() ? 0 : GroupKey(group->members);

  Operation* operation = node.queue.New();
  operation->group = group.get();
  node.groups.push_back(std::move(group));
  operation->name = words[2] == "-" ? "" : words[2];
  operation->callback_only = Option(words, "callback", "no") == "yes";
  operation->kind = Named<Kind>(words[3], kNumKinds);
  operation->op = Named<Op>(Option(words, "op", "sum"), kNumOps);
  if (operation->kind == Kind::kBroadcast)
    operation->root = Rank{std::stoi(Option(words, "root", "0"))};
  if (operation->kind == Kind::kNeighborAllreduce) {
    const auto me = static_cast<size_t>(ToInt(node.groups.back()->my_index));
    operation->peers = NewPeerTable(members.size(), me);
    for (const std::string& from : Split(Option(words, "from", ""), ','))
      if (!from.empty()) SetWeight(std::stoul(from), 1, &operation->peers);
    for (const std::string& to : Split(Option(words, "to", ""), ','))
      if (!to.empty()) SetReceiver(members.size(), std::stoul(to), &operation->peers);
  }
  if (HasTensors(operation->kind)) {
    Tensor t;
    t.dtype = Named<DType>(Option(words, "dtype", "float32"), kNumDTypes);
    for (const std::string& dim : Split(words[4], 'x'))
      t.shape.dims[static_cast<size_t>(t.shape.ndim++)] = std::stoll(dim);
    node.memory.push_back(std::make_unique<std::byte[]>(t.LengthBytes() + 1));
    t.data = node.memory.back().get();
    Fill(t, 1 << rank);
    operation->inputs = {t};
    if (operation->kind != Kind::kAllgather) operation->outputs = operation->inputs;
  }
  uint64_t handle = 0;
  node.last[words[2]] = operation;
  const Status status = node.queue.Submit(operation, &handle);
  if (!status.ok()) Say(std::to_string(rank) + " is refused: " + status.message());
}

bool Stage::Pass(int32_t rank) {
  if (network_->IsDead(Rank{rank})) return false;
  bool moved = false;
  nodes_[static_cast<size_t>(rank)]->runtime->RunOnce(&moved);
  return moved;
}

bool Stage::Settle(int32_t rank) {
  bool any = false;
  while (Pass(rank)) any = true;
  return any;
}

void Stage::Run() {
  for (bool any = true; any;) {
    any = false;
    for (size_t r = 0; r < nodes_.size(); ++r) any |= Settle(static_cast<int32_t>(r));
  }
}

void Stage::Wait(const Words& words) {
  const int32_t rank = std::stoi(words[1]);
  Node& node = *nodes_[static_cast<size_t>(rank)];
  const auto found = node.last.find(words[2]);
  if (found == node.last.end()) return Say("(nothing to wait for)");
  node.queue.Await(found->second);
  while (!found->second->ended.load() && Pass(rank)) {
  }
  if (!found->second->ended.load()) Say(words[1] + " still waits for " + words[2]);
}

std::string Stage::Text(const OperationId& id) const {
  const std::string name =
      (id.stream.empty() ? "-" : id.stream) + "." + std::to_string(id.occurrence);
  const auto group = group_names_.find(id.group);
  return group == group_names_.end() ? name : name + "@" + group->second;
}

void Stage::OnSend(Rank rank, Rank to, const Message& m) {
  Say(covey::Text(rank) + " -> " + covey::Text(to) + " " + NameOf(m.type) + " " + Text(m.id) +
      Content(m));
}

void Stage::OnBegin(Rank rank, const OperationId& id, uint32_t entry) {
  Say(covey::Text(rank) + " begins " + Text(id) +
      (entry == 0 ? " void" : " entry " + std::to_string(entry)));
}

void Stage::OnExchangeEnd(Rank rank, const OperationId& id, Outcome outcome) {
  if (outcome == Outcome::kVoid) Say(covey::Text(rank) + " voided " + Text(id));
}

void Stage::OnEnd(Rank rank, const Request& request, const Status& status) {
  const std::string name = (request.name.empty() ? "-" : request.name);
  const auto group = group_names_.find(request.group->key);
  std::string line = covey::Text(rank) + " ends " + name +
                     (group == group_names_.end() ? "" : "@" + group->second) + " " +
                     status.ToString();
  if (status.ok() && request.kind == Kind::kAllgather) {
    size_t count = 0;
    for (int64_t rows : request.rows)
      count += static_cast<size_t>(rows * request.inputs[0].shape.RowElems());
    line += " " + Values(request.inputs[0].dtype, request.gathered.get(), count);
  } else if (!request.outputs.empty()) {
    const Tensor& t = request.outputs[0];
    line += " " + Values(t.dtype, t.data, static_cast<size_t>(t.shape.Elems()));
  }
  Say(line);
}

}  // namespace covey
