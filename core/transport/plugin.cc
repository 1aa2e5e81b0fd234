#include "core/transport/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace covey {
namespace {

struct Folder {
  std::string path;
  const char* why;  // is looked into
};

// The needs of a plug-in, and the remedy without them.
struct Known {
  std::string_view name;
  const char* needs;
  const char* otherwise;
};
constexpr const char* kSharedMemory = "leave COVEY_TRANSPORT at auto (shared memory)";
constexpr Known kKnown[] = {
    {"mpi", "the MPI library of the machine (covey build mpi makes it)", kSharedMemory},
    {"ucx", "the UCX library of the machine (covey build ucx makes it)",
     "leave COVEY_TRANSPORT at auto (shared memory, TCP between hosts)"},
    {"grpc", "the gRPC library of the machine (covey build grpc makes it)",
     "start all ranks with one coveyrun"},
    {"tcp", "", kSharedMemory},                   // in the wheel
    {"cuda", "", "move the tensors to the CPU"},  // in the wheel
};

std::string FileOf(std::string_view name) { return "libcovey_" + std::string(name) + ".so"; }

// Names become part of a path.
bool IsName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// The folder of the shared object (or program) that this code is part of; empty: unknown.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(static_cast<const void*>(kPluginAbi), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

std::vector<Folder> FoldersOf(std::string_view path) {
  std::vector<Folder> folders;
  while (!path.empty()) {
    const std::string_view folder = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(folder.size() + 1, path.size()));
    if (!folder.empty()) folders.push_back({std::string(folder), "COVEY_PLUGIN_PATH"});
  }
  if (std::string own = OwnFolder(); !own.empty())
    folders.push_back({std::move(own), "beside libcovey.so"});
  return folders;
}

Status Absent(std::string_view name, const std::vector<Folder>& folders) {
  std::string text = "the plug-in " + FileOf(name) + " is in none of the places looked at:";
  for (size_t i = 0; i < folders.size(); ++i)
    text += (i > 0 ? ", " : " ") + folders[i].path + " (" + folders[i].why + ")";
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [name](const Known& one) { return one.name == name; });
  const bool is_known = known != std::end(kKnown);
  text += is_known && *known->needs == '\0' ? "; the wheel of Covey has it"
                                            : "; the wheel of Covey comes without it";
  if (is_known && *known->needs != '\0') text += ", because it needs " + std::string(known->needs);
  text += ": put one built for " + std::string(kPluginAbi) +
          " there or name its folder in COVEY_PLUGIN_PATH";
  if (is_known) text += ", or " + std::string(known->otherwise);
  return Status::Unsupported(text);
}

template <class Function>
Function FunctionOf(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::string LoaderError() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error of the loader" : text;
}

}  // namespace

Status Plugin::Open(std::string_view name, std::string_view path, Plugin* plugin, Scope scope) {
  if (!IsName(name))
    return Status::InvalidArgument("\"" + std::string(name) +
                                   "\" is not the name of a plug-in: small letters, digits, _");
  const std::vector<Folder> folders = FoldersOf(path);
  std::string file;
  for (const Folder& folder : folders) {
    const std::string candidate = folder.path + "/" + FileOf(name);
    if (access(candidate.c_str(), F_OK) != 0) continue;
    file = candidate;
    break;
  }
  if (file.empty()) return Absent(name, folders);
  const int first = scope == Scope::kOwn ? RTLD_DEEPBIND : 0;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | first);
  if (library == nullptr)
    return Status::Unsupported("the plug-in " + file + " cannot be loaded: " + LoaderError());
  plugin->open_link_ = FunctionOf<covey_open_link_function*>(library, "covey_open_link");
  plugin->open_device_ = FunctionOf<Entry>(library, "covey_open_device");
  // These check COVEY_LINK_ABI and COVEY_DEVICE_ABI themselves.
  if (plugin->open_link_ != nullptr || plugin->open_device_ != nullptr) return Status::Ok();
  const auto abi = FunctionOf<const char* (*)()>(library, "covey_plugin_abi");
  if (abi == nullptr)
    return Status::Unsupported(file + " is not a plug-in of Covey: it shows no covey_plugin_abi");
  if (std::string_view(abi()) != kPluginAbi)
    return Status::Unsupported("the plug-in " + file + " was built for " + abi() + ", this is " +
                               kPluginAbi + ": build it again from the same sources");
  plugin->find_transport_ =
      FunctionOf<const TransportKind* (*)(const char*)>(library, "covey_plugin_find_transport");
  plugin->find_control_ =
      FunctionOf<const ControlKind* (*)(const char*)>(library, "covey_plugin_find_control");
  if (plugin->find_transport_ == nullptr || plugin->find_control_ == nullptr)
    return Status::Unsupported("the plug-in " + file + " is incomplete: " + LoaderError());
  return Status::Ok();
}

const TransportKind* Plugin::FindTransport(std::string_view name) const {
  return find_transport_ == nullptr ? nullptr : find_transport_(std::string(name).c_str());
}

const ControlKind* Plugin::FindControl(std::string_view name) const {
  return find_control_ == nullptr ? nullptr : find_control_(std::string(name).c_str());
}

Status LoadTransport(std::string_view name, std::string_view plugin_path,
                     const TransportKind** kind) {
  *kind = FindTransport(name);
  if (*kind != nullptr) return Status::Ok();
  Plugin plugin;
  if (const Status opened = Plugin::Open(name, plugin_path, &plugin); !opened.ok())
    return Status::Unsupported("transport " + std::string(name) + ": " + opened.message());
  if (plugin.open_device() != nullptr)
    return Status::Unsupported("the plug-in " + FileOf(name) + " is a device, no transport");
  if (plugin.open_link() != nullptr)
    return Status::Unsupported("transport " + std::string(name) +
                               " joins ranks that mpirun or srun has started, not coveyrun: run "
                               "mpirun -np N python SCRIPT");
  *kind = plugin.FindTransport(name);
  if (*kind != nullptr) return Status::Ok();
  return Status::Unsupported("the plug-in " + FileOf(name) + " offers no transport " +
                             std::string(name));
}

Status LoadControl(std::string_view name, std::string_view plugin_path, const ControlKind** kind) {
  Plugin plugin;
  const Status opened = Plugin::Open(name, plugin_path, &plugin, Plugin::Scope::kOwn);
  if (!opened.ok()) return Status::Unsupported("the control plane: " + opened.message());
  *kind = plugin.FindControl(name);
  if (*kind != nullptr) return Status::Ok();
  return Status::Unsupported("the plug-in " + FileOf(name) + " offers no control plane " +
                             std::string(name));
}

}  // namespace covey
