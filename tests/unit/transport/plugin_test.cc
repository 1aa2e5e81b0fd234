// Goal: a plug-in is found, checked, and offers what registered itself in it; every way in which it
// can be absent or wrong is one sentence that names the file and what to do.
// Method: real shared objects, built beside (tests/plugins).
#include "core/transport/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace covey {
namespace {

constexpr const char* kFolder = "tests/plugins";

std::string ErrorOf(std::string_view name, std::string_view path = kFolder) {
  Plugin plugin;
  const Status status = Plugin::Open(name, path, &plugin);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  return status.message();
}

testing::AssertionResult Holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
}

TEST(PluginTest, OffersWhatRegisteredItselfInIt) {
  Plugin plugin;
  const Status opened = Plugin::Open("tiny", kFolder, &plugin);
  ASSERT_TRUE(opened.ok()) << opened.message();
  const TransportKind* tiny = plugin.FindTransport("tiny");
  ASSERT_NE(tiny, nullptr);
  EXPECT_STREQ(tiny->name, "tiny");
  EXPECT_EQ(plugin.FindTransport("tin"), nullptr);
  EXPECT_EQ(FindTransport("tiny"), nullptr) << "opening a plug-in changed this side";
}

TEST(PluginTest, ItsTransportWorks) {
  const TransportKind* tiny = nullptr;
  const Status loaded = LoadTransport("tiny", kFolder, &tiny);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  std::unique_ptr<Transport> transport;
  const Status opened = tiny->open(
      {.rank = Rank{0}, .size = 1, .arena_bytes = 1 << 20, .start_timeout = kSecond}, &transport);
  ASSERT_TRUE(opened.ok()) << opened.message();
  const Bytes sent(17, std::byte{5});
  ASSERT_TRUE(transport->TrySend(Rank{0}, sent));
  Rank from = kNoRank;
  Bytes received;
  ASSERT_TRUE(transport->TryReceive(&from, &received));
  EXPECT_EQ(received, sent);
}

TEST(PluginTest, OpensTheFirstOfSeveralFolders) {
  Plugin plugin;
  EXPECT_TRUE(Plugin::Open("tiny", std::string("/nowhere::") + kFolder, &plugin).ok());
  EXPECT_TRUE(Plugin::Open("tiny", std::string(kFolder) + ":/nowhere", &plugin).ok());
}

TEST(PluginTest, AnAbsentOneIsNamedWithThePlacesAndTheWayOut) {
  const std::string text = ErrorOf("mpi", "/nowhere:/elsewhere");
  EXPECT_TRUE(Holds(text,
                    "libcovey_mpi.so is in none of the places looked at: "
                    "/nowhere (COVEY_PLUGIN_PATH), /elsewhere (COVEY_PLUGIN_PATH), "));
  EXPECT_TRUE(Holds(text, " (beside libcovey.so)"));
  EXPECT_TRUE(Holds(text, "needs the MPI library of the machine"));
  EXPECT_TRUE(Holds(text, std::string("built for ") + kPluginAbi));
  EXPECT_TRUE(Holds(text, "leave COVEY_TRANSPORT at auto"));
  EXPECT_TRUE(Holds(ErrorOf("cuda", ""), "move the tensors to the CPU"));
}

TEST(PluginTest, OneOfAnotherVersionIsRefused) {
  const std::string text = ErrorOf("older");
  EXPECT_TRUE(Holds(text, "tests/plugins/libcovey_older.so was built for Covey 0.0.1"));
  EXPECT_TRUE(Holds(text, std::string("this is ") + kPluginAbi));
}

TEST(PluginTest, AnotherLibraryIsRefused) {
  EXPECT_TRUE(Holds(ErrorOf("stranger"), "libcovey_stranger.so is not a plug-in of Covey"));
}

TEST(PluginTest, ABrokenFileIsRefusedInTheLoadersWords) {
  EXPECT_TRUE(Holds(ErrorOf("torn"), "libcovey_torn.so cannot be loaded: "));
}

TEST(PluginTest, ExceptionsAreCaughtInWhatIsLinkedAsOne) {
  void* library = dlopen("tests/plugins/libcovey_thrower.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto caught = reinterpret_cast<int (*)()>(dlsym(library, "covey_plugin_catch"));
  ASSERT_NE(caught, nullptr);
  EXPECT_EQ(caught(), 1);
}

TEST(PluginTest, AnEmptyOneOffersNoTransport) {
  const TransportKind* kind = nullptr;
  const Status status = LoadTransport("empty", kFolder, &kind);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(Holds(status.message(), "libcovey_empty.so offers no transport empty"));
  EXPECT_EQ(kind, nullptr);
}

TEST(PluginTest, AnAbsentControlPlaneIsNamedWithTheWayOut) {
  const ControlKind* kind = nullptr;
  const Status status = LoadControl("grpc", "/nowhere", &kind);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(kind, nullptr);
  EXPECT_TRUE(
      Holds(status.message(), "the control plane: the plug-in libcovey_grpc.so is in none"));
  EXPECT_TRUE(Holds(status.message(), "start all ranks with one coveyrun"));
  Plugin plugin;
  ASSERT_TRUE(Plugin::Open("tiny", kFolder, &plugin).ok());
  EXPECT_EQ(plugin.FindControl("tiny"), nullptr);
}

}  // namespace
}  // namespace covey
