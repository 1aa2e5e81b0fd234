// The export of the plug-in ucx: UcxLink as the functions of core/transport/covey_link.h.

#include "core/transport/covey_link.h"
#include "ops/transports/ucx/ucx_link.h"

namespace covey::ucx {
namespace {

UcxLink* Of(void* self) { return static_cast<UcxLink*>(self); }

int Send(void* self, int32_t to, const void* message, size_t length) {
  return Of(self)->Send(to, message, length) ? 1 : 0;
}

int Put(void* self, int32_t to, uint64_t offset, const void* data, size_t length) {
  return Of(self)->Put(to, offset, data, length) ? 1 : 0;
}

int Receive(void* self, int32_t* from, const void** message, size_t* length) {
  return Of(self)->Receive(from, message, length) ? 1 : 0;
}

void Land(void* self, int32_t from, void* memory, size_t length) {
  Of(self)->Land(from, memory, length);
}

int Flushed(void* self) { return Of(self)->Flushed() ? 1 : 0; }
void Drop(void* self, int32_t peer) { Of(self)->Drop(peer); }
int Lost(void* self, int32_t* peer, const char** how) { return Of(self)->Lost(peer, how) ? 1 : 0; }
void Close(void* self) { delete Of(self); }
void Expect(void* self, int32_t peer, uint64_t token) { Of(self)->Expect(peer, token); }

void Connect(void* self, int32_t peer, const void* address, size_t /*length*/, uint64_t token) {
  Of(self)->Connect(peer, address, token);
}

std::string Open(uint32_t abi, const covey_link_options& options, std::unique_ptr<UcxLink>* link) {
  if (abi != COVEY_LINK_ABI)
    return "it was built for another version of Covey: run covey build ucx";
  if (options.address == nullptr)
    return "it is for the ranks that coveyrun or torchrun starts on several hosts; those of mpirun "
           "and srun use mpi";
  Fabric fabric;
  const std::string why = Choose(options.address, options.is_trusted != 0, &fabric);
  if (!why.empty()) return why;
  return UcxLink::Open({options.rank, options.size, options.lease_ns}, fabric, link);
}

}  // namespace
}  // namespace covey::ucx

extern "C" {

[[gnu::visibility("default")]] int covey_open_link(uint32_t abi, const covey_link_options* options,
                                                   covey_link* link, char* error, size_t capacity) {
  namespace ucx = covey::ucx;
  std::unique_ptr<ucx::UcxLink> opened;
  if (const std::string why = ucx::Open(abi, *options, &opened); !why.empty()) {
    if (capacity > 0) error[why.copy(error, capacity - 1)] = '\0';
    return 1;
  }
  *link = {};
  link->rank = options->rank;
  link->size = options->size;
  link->any_thread = 1;
  link->descriptor = opened->worker().descriptor();
  link->address = opened->worker().address();
  link->address_length = opened->worker().address_length();
  link->send = ucx::Send;
  link->receive = ucx::Receive;
  link->flushed = ucx::Flushed;
  link->close = ucx::Close;
  link->land = ucx::Land;
  link->put = ucx::Put;
  link->drop = ucx::Drop;
  link->lost = ucx::Lost;
  link->expect = ucx::Expect;
  link->connect = ucx::Connect;
  link->self = opened.release();
  return 0;
}

}  // extern "C"
