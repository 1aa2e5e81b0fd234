// Throws and catches inside of a shared object that is linked as libcovey.so is.
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

[[gnu::noinline]] int Deep(int depth) {
  if (depth == 0) throw std::runtime_error("thrown");
  const std::string unwound(static_cast<size_t>(depth) * 100, 'x');
  return Deep(depth - 1) + static_cast<int>(unwound.size());
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int covey_plugin_catch() {
  try {
    return Deep(20);
  } catch (const std::exception& error) {
    return error.what() == std::string("thrown") ? 1 : 0;
  }
}
