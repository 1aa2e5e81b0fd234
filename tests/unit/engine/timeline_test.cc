// Goal: the trace is valid JSON at every moment, holds what was emitted, ends at its cap, and its
// troubles reach nobody but one warning. Method: a strict reader of JSON applied after each flush,
// after the death of a writing process, and on devices and folders that refuse.
#include "core/engine/timeline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/clock.h"

namespace covey {
namespace {

constexpr size_t kNoCap = size_t{64} << 20;

// Strict JSON of objects, arrays, strings, numbers and true/false/null.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  // True when all of the text is one value.
  bool Valid() {
    const bool valid = Value() && (Blank(), text_.empty());
    return valid;
  }

 private:
  void Blank() {
    while (!text_.empty() && std::string_view(" \n\t\r").find(text_[0]) != std::string_view::npos) {
      text_.remove_prefix(1);
    }
  }
  bool Take(std::string_view token) {
    Blank();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  bool Value() {
    Blank();
    if (text_.empty()) return false;
    if (text_[0] == '{') return Sequence("{", "}", true);
    if (text_[0] == '[') return Sequence("[", "]", false);
    if (text_[0] == '"') return String();
    return Take("true") || Take("false") || Take("null") || Number();
  }
  bool Sequence(std::string_view open, std::string_view close, bool keyed) {
    if (!Take(open)) return false;
    if (Take(close)) return true;
    do {
      Blank();
      if (keyed && (!String() || !Take(":"))) return false;
      if (!Value()) return false;
    } while (Take(","));
    return Take(close);
  }
  bool String() {
    if (!Take("\"")) return false;
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '"') {
        text_.remove_prefix(i + 1);
        return true;
      }
      if (c != '\\') continue;
      const size_t length = i + 1 < text_.size() && text_[i + 1] == 'u' ? 5 : 1;
      if (i + length >= text_.size()) return false;
      if (std::string_view("\"\\/bfnrtu").find(text_[i + 1]) == std::string_view::npos)
        return false;
      for (size_t k = 2; k <= length; ++k) {
        if (std::isxdigit(static_cast<unsigned char>(text_[i + k])) == 0) return false;
      }
      i += length;
    }
    return false;
  }
  bool Number() {
    const size_t end = text_.find_first_not_of("0123456789-.");
    const std::string number(text_.substr(0, end));
    char* stop = nullptr;
    std::strtod(number.c_str(), &stop);
    text_.remove_prefix(number.size());
    return !number.empty() && *stop == '\0';
  }

  std::string_view text_;
};

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "covey_timeline_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/rank.3.json";
  }
  void TearDown() override {
    std::remove(path_.c_str());
    rmdir(folder_.c_str());
  }
  std::unique_ptr<Timeline> Open(size_t max_bytes = kNoCap) {
    std::unique_ptr<Timeline> timeline;
    const Status status = Timeline::Open(path_, Rank{3}, max_bytes, &timeline);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return timeline;
  }
  // The file, which must be valid.
  std::string Text() {
    std::string text = ReadFile(path_);
    EXPECT_TRUE(JsonReader(text).Valid()) << text.substr(0, 4000);
    return text;
  }

  std::string folder_;
  std::string path_;
};

TEST(JsonReader, TellsValidFromBroken) {
  for (const char* valid : {"[]", "{\"a\":[1,-2.5,\"\\u00e9\\n\"]}", " [true,\nnull] "}) {
    EXPECT_TRUE(JsonReader(valid).Valid()) << valid;
  }
  for (const char* broken : {"", "[", "[1,]", "[1]]", "{1:2}", "[\"\\x\"]", "[\"a\nb\"]", "[1 2]",
                             "[\"\\u00g0\"]", "[}", "[1-]"}) {
    EXPECT_FALSE(JsonReader(broken).Valid()) << broken;
  }
}

TEST_F(TimelineTest, HasItsHeadFromTheStart) {
  const auto timeline = Open();
  const std::string text = Text();
  EXPECT_NE(
      text.find(R"({"name":"process_name","ph":"M","pid":3,"tid":0,"args":{"name":"rank 3"}})"),
      std::string::npos);
  EXPECT_NE(text.find(R"({"name":"clock","ph":"M","pid":3,"tid":0,"args":{"unix_us_of_zero":)"),
            std::string::npos);
}

TEST_F(TimelineTest, IsValidAfterEachFlushAndHoldsWhatWasEmitted) {
  const auto timeline = Open();
  for (int i = 0; i < 50; ++i) {
    timeline->Span("exchange", "grad." + std::to_string(i), 1000 * i, 1000 * i + 500);
    timeline->Flush();
    EXPECT_EQ(Count(Text(), "\"ph\":\"X\""), static_cast<size_t>(i + 1));
  }
  timeline->Span("exchange", "b", 1234567, 2000007, {{"bytes", 4096}, {"segments", -1}});
  timeline->Instant("submit", "c", 5);
  timeline->Close();
  const std::string text = Text();
  EXPECT_NE(text.find(R"({"name":"b","ph":"X","pid":3,"tid":65,"ts":1234.567,"dur":765.440,)"
                      R"("args":{"bytes":4096,"segments":-1}})"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"({"name":"c","ph":"i","s":"p","pid":3,"tid":17,"ts":0.005})"),
            std::string::npos);
  EXPECT_EQ(Count(text, "thread_name"), 2u);
}

TEST_F(TimelineTest, TheThreadWritesByItself) {
  const auto timeline = Open();
  timeline->Span("submit", "alone", 1, 2);
  // Bounded by the limit of the test: the thread looks every 100 ms.
  while (ReadFile(path_).find("alone") == std::string::npos) std::this_thread::yield();
  Text();
}

TEST_F(TimelineTest, NamesMayHoldAnything) {
  const auto timeline = Open();
  const std::string all_bytes = [] {
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
    return bytes;
  }();
  timeline->Span("exchange", "quote\" slash\\ line\n", 0, 1);
  timeline->Span("exchange", all_bytes.substr(0, 128), 0, 1);
  timeline->Span("exchange", all_bytes.substr(128), 0, 1);
  timeline->Span("exchange", std::string(100000, 'x'), 0, 1);
  timeline->Span("a track nobody knows", "", -5, -7);
  timeline->Close();
  const std::string text = Text();
  EXPECT_NE(text.find(R"("name":"quote\" slash\\ line\n")"), std::string::npos);
  EXPECT_EQ(Count(text, "\"" + std::string(TraceEvent::kMaxNameBytes, 'x') + "\""), 1u);
  EXPECT_NE(text.find(R"("args":{"name":"other"})"), std::string::npos);
}

TEST_F(TimelineTest, OverlappingSpansGetLanesOfTheirOwnExceptThoseOfPython) {
  const auto timeline = Open();
  timeline->Span("exchange", "first", 0, 100);
  timeline->Span("exchange", "overlaps", 50, 150);
  timeline->Span("exchange", "after first", 100, 160);
  timeline->Span("python", "inner", 10, 20);
  timeline->Span("python", "outer", 0, 30);
  timeline->Close();
  const std::string text = Text();
  const auto lane = [&text](const std::string& name) {
    const size_t at = text.find("\"name\":\"" + name + "\"");
    return std::atoi(text.c_str() + text.find("\"tid\":", at) + 6);
  };
  EXPECT_EQ(lane("overlaps"), lane("first") + 1);
  EXPECT_EQ(lane("after first"), lane("first"));
  EXPECT_EQ(lane("inner"), lane("outer"));
  EXPECT_NE(text.find(R"("args":{"name":"exchange 2"})"), std::string::npos);
}

TEST_F(TimelineTest, EndsAtItsCapAndSaysSo) {
  constexpr size_t kCap = 20000;
  const auto timeline = Open(kCap);
  for (int i = 0; i < 1000; ++i) {
    timeline->Span("exchange", "gradient of a layer", i, i + 1);
    if (i % 100 == 0) timeline->Flush();
  }
  timeline->Close();
  const std::string text = Text();
  EXPECT_LE(text.size(), kCap);
  EXPECT_GT(text.size(), kCap - 1000);
  EXPECT_EQ(Count(text, "timeline full"), 1u);
  EXPECT_GT(text.find("timeline full"), text.rfind("gradient of a layer"));
}

TEST_F(TimelineTest, AnyNumberOfThreadsLosesNothingUncounted) {
  const auto timeline = Open();
  constexpr int kThreads = 4;
  constexpr int kEvents = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&timeline] {
      for (int i = 0; i < kEvents; ++i) timeline->Instant("submit", "event", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  timeline->Flush();
  timeline->Instant("submit", "last", kEvents);  // an event for the count of the dropped to follow
  timeline->Close();
  const std::string text = Text();
  size_t dropped = 0;
  for (size_t at = text.find("events dropped"); at != std::string::npos;
       at = text.find("events dropped", at + 1)) {
    dropped += std::strtoull(text.c_str() + text.find("\"count\":", at) + 8, nullptr, 10);
  }
  EXPECT_EQ(Count(text, "\"event\"") + dropped, size_t{kThreads} * kEvents);
}

TEST_F(TimelineTest, IsValidAfterTheWriterWasKilled) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::unique_ptr<Timeline> timeline;
    if (!Timeline::Open(path_, Rank{3}, kNoCap, &timeline).ok()) _exit(1);
    for (int i = 0; i < 1000; ++i) {
      timeline->Span("exchange", "before the end", i, i + 1);
      if (i % 10 == 9) timeline->Flush();
    }
    timeline->Span("exchange", "maybe lost", 1, 2);
    if (write(told[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  close(told[0]);
  close(told[1]);
  EXPECT_TRUE(WIFSIGNALED(state));
  EXPECT_EQ(Count(Text(), "before the end"), 1000u);
}

TEST_F(TimelineTest, APathThatCannotBeWrittenIsAnErrorOfOpen) {
  std::unique_ptr<Timeline> timeline;
  const Status folder = Timeline::Open(folder_ + "/no/such.json", Rank{0}, kNoCap, &timeline);
  EXPECT_EQ(folder.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(folder.message(), "the timeline " + folder_ +
                                  "/no/such.json cannot be opened: No such file or directory");
  EXPECT_FALSE(Timeline::Open(folder_, Rank{0}, kNoCap, &timeline).ok());
  const Status full = Timeline::Open("/dev/full", Rank{0}, kNoCap, &timeline);
  EXPECT_EQ(full.message(), "the timeline /dev/full cannot be written: No space left on device");
  EXPECT_FALSE(Timeline::Open(path_, Rank{0}, 100, &timeline).ok());
  EXPECT_EQ(timeline, nullptr);
}

// RLIMIT_FSIZE stands for a disk that fills up while the trace is written.
TEST_F(TimelineTest, AFailureLaterWarnsOnceAndLeavesAValidFile) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto timeline = Open();
    const rlimit limit = {4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    std::atomic<int> warnings = 0;
    timeline->OnFailure([&warnings](const Status& status) {
      if (status.code() == StatusCode::kExhausted) ++warnings;
    });
    for (int i = 0; i < 1000; ++i) {
      timeline->Span("exchange", "event", i, i + 1);
      if (i % 100 == 0) timeline->Flush();
    }
    timeline->Close();
    int late = 0;
    timeline->OnFailure([&late](const Status&) { ++late; });
    _exit(warnings == 1 && late == 1 ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_GT(Count(Text(), "\"event\""), 0u);
}

}  // namespace
}  // namespace covey
