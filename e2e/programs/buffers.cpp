// Holds buffers on a device without Python: buffers COUNT BYTES, until its standard input ends. ttnn's wheel has no
// headers, so what is used of them is declared here, as in 0.81.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace tt::tt_metal {
struct DispatchCoreConfig {
	char none[64] = {};
};

struct BufferShardingArgs {
	BufferShardingArgs();
	~BufferShardingArgs();
	void *impl;
};

namespace distributed {
class MeshDevice {
public:
	static std::shared_ptr<MeshDevice> create_unit_mesh(
		int chip, size_t l1_small, size_t trace, size_t queues, const DispatchCoreConfig &, std::span<const uint32_t> remap, size_t worker_l1);
	bool close();
};

struct ReplicatedBufferConfig {
	uint64_t bytes;
};

struct ShardedBufferConfig {
	uint64_t bytes[6];
};

struct DeviceLocalBufferConfig {
	uint64_t page_bytes;
	uint32_t type; // 0: DRAM
	BufferShardingArgs interleaved = {};
	std::optional<bool> bottom_up = {};
	std::optional<uint8_t> sub_device = {};
};

class MeshBuffer {
public:
	static std::shared_ptr<MeshBuffer> create(
		const std::variant<ReplicatedBufferConfig, ShardedBufferConfig> &, const DeviceLocalBufferConfig &, MeshDevice *, std::optional<uint64_t> address);
	void deallocate();
};
} // namespace distributed
} // namespace tt::tt_metal

using namespace tt::tt_metal;
using namespace tt::tt_metal::distributed;

struct Cache {
	std::vector<std::shared_ptr<MeshBuffer>> held;

	[[gnu::noinline]] void fill(MeshDevice *device, uint64_t bytes)
	{
		held.push_back(MeshBuffer::create(ReplicatedBufferConfig{bytes}, {2048, 0}, device, {})); // # line: held
	}
};

int main(int, char **argv)
{
	auto device = MeshDevice::create_unit_mesh(0, 32768, 0, 1, {}, {}, 0);
	Cache cache;
	for (int n = std::atoi(argv[1]); n > 0; n--)
		cache.fill(device.get(), std::strtoull(argv[2], nullptr, 10));
	std::puts("holding");
	std::fflush(stdout);
	while (std::getchar() != EOF) {
	}
	cache.held.clear();
	device->close();
}
