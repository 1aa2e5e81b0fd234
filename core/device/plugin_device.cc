#include "core/device/plugin_device.h"

#include "core/transport/plugin.h"

namespace covey {
namespace {

Status Open(std::string_view name, const Plugin& plugin, int32_t index, covey_device* device) {
  auto* open = reinterpret_cast<covey_open_device_function*>(plugin.open_device());
  char error[512] = "it does not say why";
  if (open(COVEY_DEVICE_ABI, index, device, error, sizeof(error)) == 0) return Status::Ok();
  return Status::Unsupported("the plug-in " + std::string(name) + " reaches no device: " + error);
}

}  // namespace

bool PluginIpcMemory::Reduce(Device::Queue queue, const Reduction& reduction,
                             std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outputs, size_t count_elems) {
  const covey_commons_reduction told = {
      .dtype = static_cast<int32_t>(reduction.dtype),
      .op = static_cast<int32_t>(reduction.op),
      .prescale = reduction.prescale,
      .postscale = reduction.postscale,
      .divisor = reduction.divisor,
      .inputs = reinterpret_cast<const void* const*>(inputs.data()),
      .num_inputs = inputs.size(),
      .outputs = reinterpret_cast<void* const*>(outputs.data()),
      .num_outputs = outputs.size(),
      .count_elems = count_elems,
  };
  return c_.reduce(c_.self, static_cast<int32_t>(queue), &told) == 0;
}

Status PluginDevice::Open(std::string_view name, std::string_view plugin_path, int32_t index,
                          std::unique_ptr<Device>* device) {
  Plugin plugin;
  RETURN_IF_ERROR(Plugin::Open(name, plugin_path, &plugin));
  if (plugin.open_device() == nullptr)
    return Status::Unsupported("the plug-in " + std::string(name) + " is no device");
  covey_device opened = {};
  RETURN_IF_ERROR(covey::Open(name, plugin, index, &opened));
  device->reset(new PluginDevice(opened));
  return Status::Ok();
}

Status CheckDevice(std::string_view name, const Plugin& plugin) {
  return Open(name, plugin, -1, nullptr);
}

}  // namespace covey
