#include "core/base/find_object.h"

#include <link.h>

#include <algorithm>
#include <cstdint>

namespace covey {
namespace {

struct Search {
  uintptr_t pc;
  dl_find_object* result;
};

// One object at a time; not 0 ends the iteration.
int Look(dl_phdr_info* info, size_t, void* context) {
  const auto& search = *static_cast<const Search*>(context);
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  uintptr_t tables = 0;
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t at = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) tables = at;
    if (header.p_type != PT_LOAD) continue;
    begin = std::min(begin, at);
    end = std::max(end, at + header.p_memsz);
    inside |= search.pc >= at && search.pc - at < header.p_memsz;
  }
  if (!inside) return 0;
  *search.result = {};
  search.result->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.result->dlfo_map_end = reinterpret_cast<void*>(end);
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(tables);
  return tables != 0 ? 1 : -1;
}

}  // namespace

int FindObject(const void* pc, dl_find_object* result) {
  Search search{reinterpret_cast<uintptr_t>(pc), result};
  return dl_iterate_phdr(Look, &search) == 1 ? 0 : -1;
}

}  // namespace covey

extern "C" int _dl_find_object(void* pc, dl_find_object* result) noexcept {
  return covey::FindObject(pc, result);
}
