// The golden transcripts of the protocol: messages, begins and ends of every rank in the situations
// that PROTOCOL.md lists, each a text that a reviewer reads.
//
// Method: a file of tests/golden/transcripts holds commands (`> ...`, see transcripts/stage.h),
// each followed by the lines it must give. When the protocol changes on purpose, write them anew
// and review the difference:
//
//   TRANSCRIPTS_REWRITE=1 bazel run //tests:sim/transcript_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/sim/transcripts/stage.h"

namespace covey {
namespace {

constexpr char kFolder[] = "tests/golden/transcripts";

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kFolder))
    if (file.path().extension() == ".txt") names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The file as it would be written now: comments and commands as they are, the lines in between new.
std::string Perform(std::istream& script) {
  Stage stage;
  std::string text;
  for (std::string line; std::getline(script, line);) {
    const bool is_command = line.starts_with("> ");
    if (is_command || line.empty() || line[0] == '#') text += line + "\n";
    if (!is_command) continue;
    for (const std::string& seen : stage.Do(line.substr(2))) text += "  " + seen + "\n";
  }
  return text;
}

class TranscriptTest : public testing::TestWithParam<std::string> {};

TEST_P(TranscriptTest, IsAsWritten) {
  const std::string path = std::string(kFolder) + "/" + GetParam() + ".txt";
  std::ifstream file(path);
  const std::string written((std::istreambuf_iterator<char>(file)), {});
  std::istringstream script(written);
  const std::string now = Perform(script);
  EXPECT_EQ(now.find("(not understood)"), std::string::npos) << now;
  if (std::getenv("TRANSCRIPTS_REWRITE") == nullptr) {
    EXPECT_EQ(now, written) << "see the top of this test for how to write it anew";
    return;
  }
  const char* tree = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  std::ofstream((tree == nullptr ? "." : std::string(tree)) + "/" + path) << now;
}

INSTANTIATE_TEST_SUITE_P(Golden, TranscriptTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace covey
