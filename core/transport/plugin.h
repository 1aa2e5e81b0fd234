// Engines that need libraries which not every machine has (mpi, ucx, grpc, cuda) are plug-ins:
// shared objects libcovey_<name>.so, opened when first asked for and never closed.
//
// A plug-in is linked as libcovey.so is: it holds its own copy of core/base and of the catalogues,
// in which its files register themselves as they would in libcovey.so. Nothing of libcovey.so
// changes when a plug-in is opened: the engine asks it for its offers. A plug-in exports these
// functions, which core/transport/plugin_entry.cc gives it:
//
//   covey_plugin_abi()                 a text; must equal kPluginAbi of the library that opens it
//   covey_plugin_find_transport(name)  FindTransport over its own catalogue
//   covey_plugin_find_control(name)    FindControl, likewise
//
// Or it is a network, written in C against core/transport/covey_link.h alone, and shows
// covey_open_link, or a device (core/device/covey_device.h, covey_open_device); any compiler makes
// it, and it knows nothing of this side's classes.
//
// Any thread. No state of its own: the system's loader knows the open plug-ins.
#ifndef COVEY_CORE_TRANSPORT_PLUGIN_H_
#define COVEY_CORE_TRANSPORT_PLUGIN_H_

#include <string>
#include <string_view>

#include "core/transport/control.h"
#include "core/transport/covey_link.h"
#include "core/transport/transport.h"

namespace covey {

// The version, and a fingerprint of the headers through which the two sides talk. Made by Bazel.
extern const char kPluginAbi[];

class Plugin {
 public:
  // Where the names that a plug-in uses are looked up first. kOwn: in the libraries it was linked
  // with. An application may show the whole process its own copy of them: TensorFlow shows gRPC's.
  // kProcess: wherever the process has them, as MPI must, of which there is one.
  enum class Scope { kProcess, kOwn };

  // Opens the plug-in `name`: the first libcovey_<name>.so in the folders of `path`
  // ("folder:folder"), then beside libcovey.so. Errors (kUnsupported) name the file, the folders
  // searched, the cause and the remedy. Causes: the file is nowhere, cannot be loaded (in the
  // loader's own words), is no plug-in of Covey, or was built for another version.
  static Status Open(std::string_view name, std::string_view path, Plugin* plugin,
                     Scope scope = Scope::kProcess);

  // Null: it offers no transport of this name. REQUIRES: opened.
  const TransportKind* FindTransport(std::string_view name) const;
  const ControlKind* FindControl(std::string_view name) const;  // null: none of this name
  // Null: it is no network.
  covey_open_link_function* open_link() const { return open_link_; }
  // Null: it is no device. Else its covey_open_device (core/device/covey_device.h), as an address.
  using Entry = void (*)();
  Entry open_device() const { return open_device_; }

 private:
  const TransportKind* (*find_transport_)(const char* name) = nullptr;
  const ControlKind* (*find_control_)(const char* name) = nullptr;
  covey_open_link_function* open_link_ = nullptr;
  Entry open_device_ = nullptr;
};

// The transport `name`: one that is linked in, or that of the plug-in of this name. An error for a
// network, which joins ranks that something else has started (core/transport/open_transport.h).
Status LoadTransport(std::string_view name, std::string_view plugin_path,
                     const TransportKind** kind);

// The control plane `name`, of the plug-in of this name.
Status LoadControl(std::string_view name, std::string_view plugin_path, const ControlKind** kind);

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PLUGIN_H_
