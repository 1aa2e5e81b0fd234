// Strangers at the port of a rank: each is refused without a word, costs bounded memory and
// descriptors, and leaves the job as it is. Method: raw sockets beside a job of two ranks; the
// door alone with a clock of the test.
#include "ops/transports/tcp/door.h"

#include <fcntl.h>

#include <algorithm>

#include "core/transport/peer_book.h"
#include "tests/unit/ops/transports/job.h"

namespace covey::tcp {
namespace {

std::unique_ptr<TlsKey> KeyOf(char digit) {
  PeerBook book;
  EXPECT_TRUE(PeerBook::Parse("covey book 1\nkey " + std::string(64, digit) +
                                  "\nsecurity tls\n0 0 127.0.0.1 1\n",
                              &book)
                  .ok());
  std::unique_ptr<TlsKey> key;
  EXPECT_TRUE(TlsKey::Make(book.key, "covey tcp 1, tls, 2 ranks", &key).ok());
  return key;
}

Terms TermsOf(int rank, char digit = 'a') {
  return {Rank{rank}, 2, 10 * kSecond, true, KeyOf(digit)};
}

void Write(int fd, const std::string& text) {
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// What has come within a hard limit, until the other side closes; "open": it does not.
std::string HeardUntilTheEnd(int fd) {
  std::string heard;
  char part[4096];
  pollfd news{fd, POLLIN, 0};
  while (poll(&news, 1, 10000) > 0) {
    const ssize_t length = recv(fd, part, sizeof(part), 0);
    if (length <= 0) return heard;
    heard.append(part, static_cast<size_t>(length));
  }
  return "open";
}

bool IsClosed(int fd) {
  char byte;
  const ssize_t length = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return length == 0 || (length < 0 && errno == ECONNRESET);
}

// A greeting as a rank with this key would send it.
std::string GreetingOf(char digit) {
  uint16_t port = 0;
  const int listener = Listen(&port);
  const Terms terms = TermsOf(1, digit);
  Socket socket;
  EXPECT_NE(Socket::Dial(AddressOf("127.0.0.1", port), kSecond, &socket), Outcome::kEnded);
  Handshake handshake(terms, std::move(socket), Rank{0});
  const int fd = accept(listener, nullptr, nullptr);
  char text[2048];
  ssize_t length = 0;
  while (length == 0) {
    handshake.Step();
    length = std::max<ssize_t>(recv(fd, text, sizeof(text), MSG_DONTWAIT), 0);
  }
  close(fd);
  close(listener);
  return {text, static_cast<size_t>(length)};
}

// A rank without its peer, and strangers. `works` is what its engine would do.
class DoorTest : public ::testing::Test {
 protected:
  DoorTest() { job_.Open(0); }
  int Come() { return Connect(job_.port(0)); }
  void Greet(const std::string& text) {
    strangers_.push_back(Come());
    Write(strangers_.back(), text);
  }
  ~DoorTest() override {
    for (int fd : strangers_) close(fd);
  }
  void UntilAllAreClosed() {
    job_.Until([this] { return std::all_of(strangers_.begin(), strangers_.end(), IsClosed); });
    for (int fd : strangers_) EXPECT_EQ(HeardUntilTheEnd(fd), "");
  }
  // The job forms, and has lost nobody.
  void JobForms() {
    job_.Open(1);
    job_.Send(1, 0, Pattern(1000, 1));
    job_.Send(0, 1, Pattern(1000, 2));
    job_.Until([this] { return job_.mail(0).size() == 1 && job_.mail(1).size() == 1; });
    EXPECT_TRUE(job_.losses(0).empty() && job_.losses(1).empty());
  }

  Job job_{2, "tls"};
  std::vector<int> strangers_;
};

TEST_F(DoorTest, GarbageIsClosedWithoutAWord) {
  std::string other = GreetingOf('b');
  Greet("GET / HTTP/1.1\r\n\r\n");
  Greet(std::string(100000, '\x16'));
  Greet(std::string(1, '\0'));
  Greet(other);                                            // of an old job
  Greet(std::string("\x16\x03\x01\xff\xff", 5) + '\x01');  // longer than any greeting
  Greet(std::string("\x16\x03\x01\x00\x04\x02", 6));       // a ServerHello
  Greet(GreetingOf('a') + "and more");
  UntilAllAreClosed();
  JobForms();
}

TEST_F(DoorTest, AChangedGreetingIsClosedWithoutAWord) {
  const std::string sound = GreetingOf('a');
  for (size_t at : {size_t{20}, size_t{50}, sound.size() / 2, sound.size() - 1}) {
    std::string changed = sound;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    Greet(changed);
  }
  UntilAllAreClosed();
  JobForms();
}

TEST_F(DoorTest, ARepeatedHandshakeOpensNothing) {
  // Rank 1 dials a listener that hands everything on, and keeps what rank 1 says.
  uint16_t port = 0;
  const int listener = Listen(&port);
  const uint16_t real = job_.port(0);
  job_.set_port(0, port);
  job_.Open(1);
  ASSERT_TRUE(job_.link(1).Send(Rank{0}, Pattern(100, 1)));
  const int from = accept(listener, nullptr, nullptr);
  const int to = Connect(real);
  std::string said;
  char part[65536];
  job_.Until([&] {
    ssize_t length = 0;
    while ((length = recv(from, part, sizeof(part), MSG_DONTWAIT)) > 0) {
      said.append(part, static_cast<size_t>(length));
      Write(to, std::string(part, static_cast<size_t>(length)));
    }
    while ((length = recv(to, part, sizeof(part), MSG_DONTWAIT)) > 0)
      Write(from, std::string(part, static_cast<size_t>(length)));
    return job_.mail(0).size() == 1;
  });
  // A new job with the same key and book, in which rank 1 has not come yet.
  Job again(2, "tls");
  again.Open(0);
  const int repeated = Connect(again.port(0));
  Write(repeated, said);
  again.Until([&] { return IsClosed(repeated) || again.mail(0).size() > 0; });
  EXPECT_TRUE(again.mail(0).empty());
  close(repeated);
  // Its greeting alone: the rank answers, and gives up.
  const int half = Connect(again.port(0));
  const size_t greeting = GreetingOf('a').size();
  Write(half, said.substr(0, greeting));
  again.Open(1);
  again.Send(1, 0, Pattern(10, 1));
  again.Until([&] { return again.mail(0).size() == 1; });
  EXPECT_TRUE(again.losses(0).empty());
  for (int fd : {listener, from, to, half}) close(fd);
}

TEST_F(DoorTest, AFloodKeepsNobodyOut) {
  for (int i = 0; i < 300; ++i) {
    strangers_.push_back(Come());
    if (i % 3 > 0) Write(strangers_.back(), std::string(1, '\x16'));
  }
  JobForms();
}

// The listener is the launcher's, and of the process's next link. Later ones wait there, unheard.
TEST_F(DoorTest, OnceAllHaveComeNobodyElseIsHeard) {
  JobForms();
  Greet(GreetingOf('a'));
  job_.Send(1, 0, Pattern(1000, 3));
  job_.Until([this] { return job_.mail(0).size() == 2; });
  EXPECT_FALSE(IsClosed(strangers_[0]));
  EXPECT_TRUE(job_.losses(0).empty());
}

// Holds the key, and claims to be what it is not.
TEST_F(DoorTest, ARankIsWhoItIsAndComesToWhomItMeans) {
  job_.Open(1);
  job_.Send(1, 0, Pattern(1, 1));
  job_.Until([this] { return job_.mail(0).size() == 1; });
  struct Claim {
    int rank, to;
  };
  for (const Claim& claim : {Claim{1, 0}, Claim{0, 0}, Claim{2, 1}, Claim{2, 2}}) {
    Job other(3, "tls");  // so that its door stays open
    other.Open(0);
    other.Open(1);
    other.Send(1, 0, Pattern(1, 1));
    other.Until([&] { return other.mail(0).size() == 1; });
    Terms terms = TermsOf(claim.rank);
    terms.size = 3;
    PeerBook book;
    ASSERT_TRUE(PeerBook::Parse(other.Book(), &book).ok());
    ASSERT_TRUE(TlsKey::Make(book.key, "covey tcp 1, tls, 3 ranks", &terms.key).ok());
    Socket socket;
    ASSERT_NE(Socket::Dial(AddressOf("127.0.0.1", other.port(0)), kSecond, &socket),
              Outcome::kEnded);
    auto handshake = std::make_unique<Handshake>(terms, std::move(socket), Rank{claim.to});
    Outcome outcome = Outcome::kWait;
    while (outcome == Outcome::kWait) {
      other.Pump(0);
      outcome = handshake->Step();
    }
    EXPECT_EQ(outcome, Outcome::kEnded) << claim.rank << " to " << claim.to;
    handshake.reset();
    other.Send(1, 0, Pattern(1, 1));
    other.Until([&] { return other.mail(0).size() == 2; });
    EXPECT_TRUE(other.losses(0).empty()) << "it was taken for a rank";
  }
}

// The door alone: its clock is the test's.
class AloneTest : public ::testing::Test {
 protected:
  AloneTest() {
    const int listener = Listen(&port_);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    door_ = std::make_unique<Door>(listener, terms_, &poller_, 0);
    door_->Tick(now_);
  }
  void Serve() {
    for (std::span<const uint64_t> ready = poller_.Ready(); !ready.empty(); ready = poller_.Ready())
      for (uint64_t key : std::vector<uint64_t>(ready.begin(), ready.end()))
        door_->Serve(key, now_);
  }
  void Wait(Time span) {
    now_ += span;
    door_->Tick(now_);
  }

  const Terms terms_ = TermsOf(0);
  uint16_t port_ = 0;
  Time now_ = 1000 * kSecond;
  Poller poller_;
  std::unique_ptr<Door> door_;
};

TEST_F(AloneTest, HalfAGreetingIsHeardForALimitedTime) {
  const int silent = Connect(port_);
  const int half = Connect(port_);
  Write(half, GreetingOf('a').substr(0, 100));
  Serve();
  EXPECT_EQ(door_->size(), 2u);
  EXPECT_TRUE(poller_.Ready().empty()) << "half a greeting keeps the engine awake";
  EXPECT_EQ(door_->Next(), now_ + Door::kPatience);
  Wait(Door::kPatience - 1);
  EXPECT_EQ(door_->size(), 2u);
  Wait(1);
  EXPECT_EQ(door_->size(), 0u);
  EXPECT_EQ(HeardUntilTheEnd(silent), "");
  EXPECT_EQ(HeardUntilTheEnd(half), "");
  close(silent);
  close(half);
}

TEST_F(AloneTest, ArrivalsHaveAPaceAndPlacesABound) {
  std::vector<int> guests;
  for (int i = 0; i < 200; ++i) guests.push_back(Connect(port_));
  Serve();
  EXPECT_EQ(door_->size(), Door::kPlaces);
  EXPECT_TRUE(poller_.Ready().empty()) << "those that have to wait keep the engine awake";
  EXPECT_GT(door_->Next(), now_);
  EXPECT_LT(door_->Next(), now_ + Door::kPatience);
  for (int i = 0; i < 1000 && !IsClosed(guests[100]); ++i) {
    Wait(kMillisecond);
    Serve();
    EXPECT_LE(door_->size(), Door::kPlaces);
  }
  EXPECT_TRUE(IsClosed(guests[0])) << "the oldest gives way";
  for (int fd : guests) close(fd);
}

TEST_F(AloneTest, WhoHasShownMoreStays) {
  const int named = Connect(port_);
  Write(named, GreetingOf('a'));
  Serve();
  std::vector<int> guests;
  for (int i = 0; i < 150; ++i) {
    guests.push_back(Connect(port_));
    Wait(kMillisecond);
    Serve();
  }
  char answer[4096];
  EXPECT_GT(recv(named, answer, sizeof(answer), 0), 0) << "the handshake goes on";
  EXPECT_FALSE(IsClosed(named));
  EXPECT_TRUE(IsClosed(guests[0]));
  close(named);
  for (int fd : guests) close(fd);
}

TEST_F(AloneTest, RepeatedGreetingsAreAnsweredAtAPace) {
  const std::string greeting = GreetingOf('a');
  int answered = 0;
  for (int i = 0; i < 300; ++i) {
    const int fd = Connect(port_);
    Write(fd, greeting);
    Wait(kMillisecond / 2);
    Serve();
    pollfd news{fd, POLLIN, 0};
    answered += poll(&news, 1, 0) > 0 && !IsClosed(fd) ? 1 : 0;
    close(fd);
    Serve();
  }
  EXPECT_GE(answered, 64);
  EXPECT_LE(answered, 64 + 75 + 1);  // 150 ms at 500 a second, after 64 at once
}

}  // namespace
}  // namespace covey::tcp
