// Goal: every knob is read from its variable and from the settings, with units, within its range;
// what is written wrongly is refused with a sentence that helps. Method: made-up environments, and
// the table of knobs itself for what must hold of each row.
#include "core/base/config.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/base/knobs.h"

namespace covey {
namespace {

Status Read(std::vector<const char*> environment, std::string_view settings, Config* config) {
  environment.push_back(nullptr);
  return Config::FromEnvironment(environment.data(), settings, config);
}

// The message of the error that one variable or one settings text causes.
std::string ErrorOfVariable(const char* entry) {
  Config config;
  const Status status = Read({entry}, "", &config);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_EQ(config.Difference(Config()), "") << "an error left something behind";
  return status.message();
}

std::string ErrorOfSettings(std::string_view settings) {
  Config config;
  return Read({}, settings, &config).message();
}

TEST(Config, AnAllocatorThatTheUserHasSetIsLeftAlone) {
  Config config;
  ASSERT_TRUE(Read({"MALLOC_ARENA_MAX=1"}, "", &config).ok());
  EXPECT_EQ(config.keep_freed, size_t{1} << 30);
  for (const char* own :
       {"MALLOC_TRIM_THRESHOLD_=1", "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"}) {
    ASSERT_TRUE(Read({own}, "", &config).ok());
    EXPECT_EQ(config.keep_freed, 0u) << own;
    ASSERT_TRUE(Read({own, "COVEY_KEEP_FREED=2MiB"}, "", &config).ok());
    EXPECT_EQ(config.keep_freed, size_t{2} << 20) << "said of Covey itself";
  }
}

TEST(Config, HasTheDefaultsOfAJobOfOne) {
  Config config;
  ASSERT_TRUE(Read({}, "", &config).ok());
  ASSERT_TRUE(Config::FromEnvironment(nullptr, "", &config).ok());
  EXPECT_EQ(config.rank, Rank{0});
  EXPECT_EQ(config.size, 1);
  EXPECT_EQ(config.local_rank, 0);
  EXPECT_EQ(config.local_size, 1);
  EXPECT_EQ(config.shm_fd, -1);
  EXPECT_EQ(config.start_timeout, 30 * kSecond);
  EXPECT_EQ(config.segment_bytes, 65536u);
  EXPECT_EQ(config.algorithm, "auto");
  EXPECT_EQ(config.log_level, LogLevel::kWarn);
  EXPECT_EQ(config.timeline, "");
}

TEST(Config, AnEmptyMethodIsNone) {
  Config config;
  ASSERT_TRUE(Read({"COVEY_METHOD="}, "", &config).ok());
  EXPECT_EQ(config.method, Config().method);
  ASSERT_TRUE(Read({"COVEY_METHOD=eager", "COVEY_METHOD="}, "method=local", &config).ok());
  EXPECT_EQ(config.method, "local");
}

TEST(Config, ReadsTheVariablesOfTheLauncher) {
  Config config;
  const Status status = Read({"PATH=/bin", "COVEY_RANK=3", "COVEY_SIZE=4", "COVEY_LOCAL_RANK=1",
                              "COVEY_LOCAL_SIZE=2", "COVEY_SHM_FD=7", "COVEY_LAUNCHER_PID=4711",
                              "COVEY_JOB=night run", "COVEY_TIMELINE=/tmp/a=b", "COVEYX=1"},
                             "", &config);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(config.rank, Rank{3});
  EXPECT_EQ(config.size, 4);
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.local_size, 2);
  EXPECT_EQ(config.shm_fd, 7);
  EXPECT_EQ(config.launcher_pid, 4711);
  EXPECT_EQ(config.job, "night run");
  EXPECT_EQ(config.timeline, "/tmp/a=b");
}

TEST(Config, LocalPlaceIsThatInTheJobWhenNotSet) {
  Config config;
  ASSERT_TRUE(Read({"COVEY_RANK=2", "COVEY_SIZE=4"}, "", &config).ok());
  EXPECT_EQ(config.local_rank, 2);
  EXPECT_EQ(config.local_size, 4);
}

TEST(Config, SettingsWinOverVariablesAndLaterLinesOverEarlier) {
  Config config;
  ASSERT_TRUE(Read({"COVEY_SPIN=1us", "COVEY_TIMELINE=a"},
                   "spin=2us\n\n  spin = 3us \r\ntimeline=b c", &config)
                  .ok());
  EXPECT_EQ(config.spin, 3 * kMicrosecond);
  EXPECT_EQ(config.timeline, "b c");
}

TEST(Config, NumbersTakeTheUnitsOfTheirKnob) {
  Config config;
  const auto set = [&config](std::string_view line) {
    const Status status = Read({}, line, &config);
    EXPECT_TRUE(status.ok()) << status.ToString();
  };
  set("start_timeout=20ms");
  EXPECT_EQ(config.start_timeout, 20 * kMillisecond);
  set("start_timeout=2.5");
  EXPECT_EQ(config.start_timeout, 2500 * kMillisecond);
  set("start_timeout=0.1 s");
  EXPECT_EQ(config.start_timeout, 100 * kMillisecond);
  set("spin=50");
  EXPECT_EQ(config.spin, 50 * kMicrosecond);
  set("spin=700ns");
  EXPECT_EQ(config.spin, 700);
  set("spin=0");
  EXPECT_EQ(config.spin, 0);
  set("segment_bytes=128KiB");
  EXPECT_EQ(config.segment_bytes, 131072u);
  set("segment_bytes=4096");
  EXPECT_EQ(config.segment_bytes, 4096u);
  set("fusion_threshold=1.5GiB");
  EXPECT_EQ(config.fusion_threshold, size_t{3} << 29);
  set("log_level=debug\nalgorithm=ring");
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
  EXPECT_EQ(config.algorithm, "ring");
}

// The order holds for ranks that have a book of addresses; others may have any times.
TEST(Config, TimesBetweenHostsHaveAnOrder) {
  Config config;
  EXPECT_TRUE(Read({}, "book_fd=3", &config).ok());
  EXPECT_TRUE(Read({}, "lease=40s\nrecheck=50s", &config).ok());
  EXPECT_EQ(Read({}, "book_fd=3\nlease=30s", &config).message(),
            "COVEY_START_TIMEOUT is 30s and COVEY_LEASE 30s: between hosts init() has to find a "
            "rank that is out of reach before it gives up; raise the first, or lower the second");
  EXPECT_EQ(Read({}, "book_fd=3\nlease=2s\nrecheck=3s", &config).message(),
            "COVEY_LEASE is 2s and COVEY_RECHECK 3s: between hosts a thread that sleeps has to "
            "look for lost ranks within a lease; raise the first, or lower the second");
}

TEST(Config, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_EQ(ErrorOfVariable("COVEY_SEGMENT_BYTE=64KiB"),
            "COVEY_SEGMENT_BYTE is not a setting of Covey; the nearest is COVEY_SEGMENT_BYTES");
  EXPECT_EQ(ErrorOfVariable("COVEY_rank=1"),
            "COVEY_rank is not a setting of Covey; the nearest is COVEY_RANK");
  EXPECT_EQ(ErrorOfVariable("COVEY_=1"),
            "COVEY_ is not a setting of Covey; the nearest is COVEY_JOB");
  EXPECT_EQ(ErrorOfSettings("tiemline=/tmp"),
            "tiemline is not a setting of Covey; the nearest is timeline");
  EXPECT_EQ(ErrorOfSettings("COVEY_SPIN=1"),
            "COVEY_SPIN is not a setting of Covey; the nearest is spin");
  EXPECT_EQ(ErrorOfSettings("spin"), "the setting \"spin\" is not of the form name=value");
}

TEST(Config, ValuesOutOfRangeAreRefusedWithTheRange) {
  EXPECT_EQ(ErrorOfVariable("COVEY_SEGMENT_BYTES=2KiB"),
            "COVEY_SEGMENT_BYTES is \"2KiB\", which is not a size from 4KiB to 16MiB that is a "
            "multiple of 64");
  EXPECT_NE(ErrorOfVariable("COVEY_SEGMENT_BYTES=5000"), "");
  EXPECT_EQ(ErrorOfVariable("COVEY_SPIN=2s"),
            "COVEY_SPIN is \"2s\", which is not a time from 0 to 1s");
  EXPECT_EQ(ErrorOfVariable("COVEY_SIZE=0"),
            "COVEY_SIZE is \"0\", which is not a number from 1 to 1024");
  EXPECT_EQ(ErrorOfSettings("cuda_path=roce"),
            "cuda_path is \"roce\", which is not one of auto, nccl, ipc, staged");
  EXPECT_NE(ErrorOfVariable("COVEY_ARENA_BYTES=1e300"), "");
  EXPECT_NE(ErrorOfVariable("COVEY_ARENA_BYTES=-1e300"), "");
}

TEST(Config, ValuesThatCannotBeReadAreRefused) {
  for (const char* entry :
       {"COVEY_RANK=", "COVEY_RANK=one", "COVEY_RANK=0.5", "COVEY_RANK=0x1", "COVEY_RANK=nan",
        "COVEY_RANK=inf", "COVEY_RANK= 1", "COVEY_RANK=1s", "COVEY_SPIN=1KiB", "COVEY_SPIN=us",
        "COVEY_SPIN=0.5ns", "COVEY_FLAT_BYTES=1kB", "COVEY_FLAT_BYTES=1K", "COVEY_FLAT_BYTES=-1",
        "COVEY_LOG_LEVEL=Debug", "COVEY_LOG_LEVEL=", "COVEY_CUDA_PATH=auto|ipc",
        "COVEY_CACHE_CAPACITY=99999999999999999999"}) {
    EXPECT_NE(ErrorOfVariable(entry), "") << entry;
  }
}

TEST(Config, ARankBeyondTheSizeIsRefused) {
  EXPECT_EQ(ErrorOfVariable("COVEY_RANK=3"), "rank is 3, which needs a size above it and not 1");
  EXPECT_EQ(ErrorOfSettings("rank=0\nsize=4\nlocal_rank=2\nlocal_size=2"),
            "local_rank is 2, which needs a local_size above it and not 2");
}

TEST(Config, AgreedTextHoldsWhatMustBeEqualInBaseUnits) {
  Config config;
  EXPECT_EQ(config.AgreedText(),
            "segment_bytes=65536;network_segment_bytes=1048576;tcp_streams=auto;flat_bytes=32768;"
            "read_bytes=1099511627776;"
            "algorithm=auto;cuda_path=auto;nccl_bytes=4096;ipc_bytes=1048576;"
            "memory_limit=0;method=allreduce");
  config.segment_bytes = 4096;
  config.spin = 0;
  EXPECT_EQ(config.AgreedText(),
            "segment_bytes=4096;network_segment_bytes=1048576;tcp_streams=auto;flat_bytes=32768;"
            "read_bytes=1099511627776;"
            "algorithm=auto;cuda_path=auto;nccl_bytes=4096;ipc_bytes=1048576;"
            "memory_limit=0;method=allreduce");
}

TEST(Config, DifferenceNamesWhatDiffersAsTheUserWritesIt) {
  const Config before;
  Config config;
  EXPECT_EQ(config.Difference(before), "");
  config.size = 4;
  config.spin = 0;
  config.log_level = LogLevel::kInfo;
  EXPECT_EQ(config.Difference(before),
            "size 4 instead of 1, spin 0 instead of 20us, log_level info instead of warn");
}

TEST(Config, KnobsJsonShowsRuleAndValue) {
  Config config;
  config.segment_bytes = 128 << 10;
  config.timeline = "/tmp/\"x\"";
  const std::string json = config.KnobsJson();
  EXPECT_NE(json.find(R"({"name":"segment_bytes","unit":"B","default":"64KiB","minimum":"4KiB",)"
                      R"("maximum":"16MiB","agreed":true,"help":)"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("value":"128KiB"})"), std::string::npos);
  EXPECT_NE(json.find(R"("value":"/tmp/\"x\""})"), std::string::npos);
  EXPECT_NE(json.find(R"({"name":"size","unit":"","default":1,"minimum":1,"maximum":1024,)"),
            std::string::npos);
  EXPECT_NE(json.find(R"("minimum":null,"maximum":null)"), std::string::npos);
  EXPECT_TRUE(KnobsJson().starts_with("[{\"name\":\"rank\""));
}

TEST(Knobs, EveryRowIsSound) {
  const Config defaults;
  std::set<std::string_view> names;
  for (const Knob& knob : AllKnobs()) {
    const std::string name(knob.name);
    EXPECT_TRUE(names.insert(knob.name).second) << name << " stands twice";
    EXPECT_EQ(FindKnob(knob.name), &knob);
    EXPECT_FALSE(knob.help.empty()) << name;
    if (knob.IsNumber()) {
      EXPECT_LE(knob.minimum, GetNumber(knob, defaults)) << name;
      EXPECT_GE(knob.maximum, GetNumber(knob, defaults)) << name;
    }
    // What is printed is what is read.
    Config config;
    const Status status = Read({}, name + "=" + ValueText(knob, defaults), &config);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(config.Difference(defaults), "");
  }
}

}  // namespace
}  // namespace covey
