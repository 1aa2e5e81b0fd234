#include "core/transport/peer_book.h"

#include <arpa/inet.h>

#include <charconv>
#include <span>

namespace covey {
namespace {

constexpr std::string_view kTitle = "covey book 1";

// The lines of a text, and the words of a line.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool AtEnd() const { return rest_.empty(); }
  // False: no line is left, or the last one has no newline.
  bool Next(std::string_view* line) {
    ++number_;
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return false;
    *line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }
  Status Bad(const std::string& why) const {
    return Status::InvalidArgument("line " + std::to_string(number_) +
                                   " of the book of ranks: " + why);
  }

 private:
  std::string_view rest_;
  int number_ = 0;
};

std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t end = 0; (end = line.find(' ')) != std::string_view::npos;
       line.remove_prefix(end + 1))
    words.push_back(line.substr(0, end));
  words.push_back(line);
  return words;
}

// A whole number as std::to_string writes it; -1: it is not, or larger than `most`.
int32_t NumberOf(std::string_view word, int32_t most) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  const bool plain = !word.empty() && word[0] != '-' && (word[0] != '0' || word.size() == 1);
  return whole && plain && value <= most ? value : -1;
}

bool IsAddress(const std::string& word) {
  in6_addr address;  // of either kind
  return inet_pton(AF_INET, word.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, word.c_str(), &address) == 1;
}

// False: not `key.size()` bytes in hexadecimal digits.
bool ReadKey(std::string_view digits, std::span<uint8_t> key) {
  if (digits.size() != 2 * key.size()) return false;
  for (size_t i = 0; i < key.size(); ++i) {
    const char* at = digits.data() + 2 * i;
    if (std::from_chars(at, at + 2, key[i], 16).ptr != at + 2) return false;
  }
  return true;
}

Status ReadPeer(const Lines& lines, std::string_view line, PeerBook* book) {
  const auto rank = static_cast<int32_t>(book->peers.size());
  const std::vector<std::string_view> words = WordsOf(line);
  if (words.size() != 4)
    return lines.Bad("not a rank, the lowest rank of its host, an address and a port");
  if (NumberOf(words[0], rank) != rank)
    return lines.Bad("rank " + std::to_string(rank) + " is due, in order");
  const int32_t host = NumberOf(words[1], rank);
  const bool is_lowest = host == rank || (host >= 0 && ToInt(book->peers[host].host) == host);
  if (!is_lowest) return lines.Bad("no lowest rank of a host: " + std::string(words[1]));
  const std::string address(words[2]);
  if (!IsAddress(address)) return lines.Bad("no IP address: " + address);
  const int32_t port = NumberOf(words[3], UINT16_MAX);
  if (port <= 0) return lines.Bad("no port: " + std::string(words[3]));
  book->peers.push_back({Rank{host}, address, static_cast<uint16_t>(port)});
  return Status::Ok();
}

}  // namespace

Status PeerBook::Parse(std::string_view text, PeerBook* book) {
  *book = {};
  Lines lines(text);
  std::string_view line;
  if (!lines.Next(&line) || line != kTitle)
    return lines.Bad("not \"" + std::string(kTitle) + "\", as this version of Covey writes");
  if (!lines.Next(&line) || !line.starts_with("key ") || !ReadKey(line.substr(4), book->key))
    return lines.Bad("not a key of 64 hexadecimal digits");
  const bool has_security =
      lines.Next(&line) && (line == "security tls" || line == "security auth");
  if (!has_security) return lines.Bad("neither \"security tls\" nor \"security auth\"");
  book->security = line == "security tls" ? Security::kTls : Security::kAuth;
  do {
    if (!lines.Next(&line)) return lines.Bad("no newline ends it, or there is none");
    RETURN_IF_ERROR(ReadPeer(lines, line, book));
  } while (!lines.AtEnd());
  return Status::Ok();
}

}  // namespace covey
