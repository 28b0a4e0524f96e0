// A CUDA driver without a GPU: memory is the host's, a module is a shared object of CPU kernels, and a
// launch runs at once.  The runtime's whole path can so be tested and timed on any machine.
//
// A kernel is one of the C++ target's: (pointers, scalars, pool).  A launch's block size minus one is
// its number of pointers, its shared memory the number of its scalars; parameters are eight bytes each.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
#define COUNT (std::lock_guard<std::recursive_mutex>(lock), ++counts[__func__])

namespace {
typedef void (*Kernel)(void* const*, const int64_t*, const void*);
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_BINARY = 209, ILLEGAL = 700, BAD_CONTEXT = 201 };
struct Params {
  Kernel func;
  unsigned gx, gy, gz, bx, by, bz, shared;
  void** params;
  void *extra, *kern, *ctx;
};
struct Node {
  Kernel func;
  std::vector<uint64_t> pointers, scalars;
  unsigned gx;
};
struct Graph {
  std::vector<Node*> nodes;
  int edges = 0, programmatic = 0;
};
struct Exec {
  std::map<Node*, Node> nodes;
  std::vector<Node*> order;
  uintptr_t context;
};
struct Event {
  bool recorded = false;
};
const uintptr_t CONTEXT = 0x1000;  // of device 0; the next one of device 1
thread_local uintptr_t current = 0;
std::recursive_mutex lock;
std::map<std::string, long> counts;
std::map<uint64_t, size_t> blocks;
size_t used = 0, limit = size_t(1) << 32;
int devices = 2, major_ = 9, minor_ = 0;

Node copy(const Params* p) {
  Node n{p->func, {}, {}, p->gx};
  for (unsigned i = 0; i + 1 < p->bx; ++i) n.pointers.push_back(*(uint64_t*)p->params[i]);
  for (unsigned i = 0; i < p->shared; ++i) n.scalars.push_back(*(uint64_t*)p->params[p->bx - 1 + i]);
  return n;
}
void run(const Node& n) {
  n.func((void* const*)n.pointers.data(), (const int64_t*)n.scalars.data(), nullptr);
}
int allocate(uint64_t* out, size_t size) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (!current) return BAD_CONTEXT;
  if (used + size > limit) return OUT_OF_MEMORY;
  void* p = aligned_alloc(256, (size + 255) / 256 * 256 + 256);
  if (!p) return OUT_OF_MEMORY;
  memset(p, 0xFF, size);  // NaN: what is read before it is written shows
  blocks[(uint64_t)p] = size;
  used += size;
  *out = (uint64_t)p;
  return OK;
}
int release(uint64_t p) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  auto found = blocks.find(p);
  if (found == blocks.end()) return INVALID;
  used -= found->second;
  memset((void*)p, 0xFF, found->second);
  free((void*)p);
  blocks.erase(found);
  return OK;
}
}  // namespace

// What tests ask and set.
extern "C" __attribute__((visibility("default"))) long fake_count(const char* name) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  return counts[name];
}
extern "C" __attribute__((visibility("default"))) void fake_reset() {
  std::lock_guard<std::recursive_mutex> guard(lock);
  counts.clear();
}
extern "C" __attribute__((visibility("default"))) void fake_limit(size_t bytes) { limit = bytes; }
extern "C" __attribute__((visibility("default"))) size_t fake_used() { return used; }
extern "C" __attribute__((visibility("default"))) void fake_arch(int major, int minor) {
  major_ = major;
  minor_ = minor;
}

API cuInit(unsigned) { return OK; }
API cuDeviceGetCount(int* n) { *n = devices; return OK; }
API cuDeviceGet(int* d, int i) { *d = i; return OK; }
API cuDeviceGetName(char* out, int n, int d) { snprintf(out, n, "Fake %d", d); return OK; }
API cuDeviceGetAttribute(int* out, int which, int) {
  *out = which == 75 ? major_ : which == 76 ? minor_ : 132;
  return OK;
}
API cuDeviceTotalMem_v2(size_t* out, int) { *out = limit; return OK; }
API cuDevicePrimaryCtxRetain(uintptr_t* c, int d) { *c = CONTEXT + d; return OK; }
API cuCtxGetCurrent(uintptr_t* c) { *c = current; return OK; }
API cuCtxSetCurrent(uintptr_t c) { COUNT; current = c; return OK; }
API cuCtxSynchronize() { COUNT; return current ? OK : BAD_CONTEXT; }
API cuMemGetInfo_v2(size_t* available, size_t* total) { *available = limit - used; *total = limit; return OK; }
API cuMemAlloc_v2(uint64_t* p, size_t n) { COUNT; return allocate(p, n); }
API cuMemFree_v2(uint64_t p) { COUNT; return release(p); }
API cuMemAllocAsync(uint64_t* p, size_t n, void*) { COUNT; return allocate(p, n); }
API cuMemFreeAsync(uint64_t p, void*) { COUNT; return release(p); }
API cuMemcpyHtoDAsync_v2(uint64_t d, const void* s, size_t n, void*) { COUNT; memcpy((void*)d, s, n); return OK; }
API cuMemcpyDtoHAsync_v2(void* d, uint64_t s, size_t n, void*) { COUNT; memcpy(d, (void*)s, n); return OK; }
API cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, void*) { COUNT; memcpy((void*)d, (void*)s, n); return OK; }
API cuMemsetD8Async(uint64_t d, unsigned char b, size_t n, void*) { COUNT; memset((void*)d, b, n); return OK; }
API cuMemsetD32Async(uint64_t d, unsigned w, size_t n, void*) {
  for (size_t i = 0; i < n; ++i) ((unsigned*)d)[i] = w;
  return OK;
}
API cuStreamCreate(uintptr_t* s, unsigned) {
  static std::atomic<uintptr_t> next{0x2000};
  *s = next++;
  return OK;
}
API cuStreamSynchronize(void*) { COUNT; return OK; }
API cuStreamWaitEvent(void*, Event* e, unsigned) { COUNT; return e->recorded ? OK : INVALID; }
API cuEventCreate(Event** e, unsigned) { *e = new Event; return OK; }
API cuEventDestroy_v2(Event* e) { delete e; return OK; }
API cuEventRecord(Event* e, void*) { COUNT; e->recorded = true; return OK; }
API cuModuleLoadData(void** out, const void* image) {
  COUNT;
  if (memcmp(image, "\x7f" "ELF", 4)) return NO_BINARY;
  // The length is in the section header table's place: the image is a whole file in memory.
  const unsigned char* e = (const unsigned char*)image;
  uint64_t shoff;
  uint16_t entry, number;
  memcpy(&shoff, e + 0x28, 8);
  memcpy(&entry, e + 0x3A, 2);
  memcpy(&number, e + 0x3C, 2);
  int fd = memfd_create("fake-module", 0);
  if (write(fd, image, shoff + uint64_t(entry) * number) < 0) return INVALID;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return *out ? OK : NO_BINARY;
}
API cuModuleGetFunction(void** out, void* module, const char* name) {
  *out = dlsym(module, name);
  return *out ? OK : 500;
}
API cuFuncSetAttribute(void*, int, int) { return OK; }
API cuLaunchKernel(Kernel f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void*, void** params, void**) {
  COUNT;
  if (!current) return BAD_CONTEXT;
  Params p{f, gx, gy, gz, bx, by, bz, shared, params, nullptr, nullptr, nullptr};
  run(copy(&p));
  return OK;
}
API cuGraphCreate(Graph** g, unsigned) { COUNT; *g = new Graph; return OK; }
API cuGraphDestroy(Graph* g) { COUNT; for (Node* n : g->nodes) delete n; delete g; return OK; }
API cuGraphAddKernelNode_v2(Node** out, Graph* g, Node* const* before, size_t count, const Params* p) {
  if (count && (g->nodes.empty() || *before != g->nodes.back())) return INVALID;
  g->edges += (int)count;
  *out = new Node(copy(p));
  g->nodes.push_back(*out);
  return OK;
}
API cuGraphAddDependencies_v2(Graph* g, Node* const* from, Node* const* to, const unsigned char* edge, size_t n) {
  if (n != 1 || edge[0] != 1 || edge[2] != 1 || *to != g->nodes.back() ||
      g->nodes.size() < 2 || *from != g->nodes[g->nodes.size() - 2])
    return INVALID;
  ++g->programmatic;
  return OK;
}
API cuGraphInstantiateWithFlags(Exec** out, Graph* g, unsigned long long) {
  COUNT;
  if (g->edges + g->programmatic + 1 < (int)g->nodes.size()) return INVALID;  // no chain
  Exec* e = new Exec;
  e->order = g->nodes;
  e->context = current;
  for (Node* n : g->nodes) e->nodes[n] = *n;
  *out = e;
  return OK;
}
API cuGraphExecDestroy(Exec* e) { COUNT; delete e; return OK; }
API cuGraphExecKernelNodeSetParams_v2(Exec* e, Node* n, const Params* p) {
  COUNT;
  if (!e->nodes.count(n)) return INVALID;
  e->nodes[n] = copy(p);
  return OK;
}
API cuGraphLaunch(Exec* e, void*) {
  COUNT;
  if (current != e->context) return BAD_CONTEXT;
  for (Node* n : e->order) run(e->nodes[n]);
  return OK;
}
API cuTensorMapEncodeTiled(void* map, int, unsigned rank, uint64_t address, const uint64_t*, const uint64_t*,
                           const uint32_t*, const uint32_t*, int, int, int, int) {
  if ((uintptr_t)map % 64 || address % 16 || !rank) return INVALID;
  memset(map, 0, 128);
  memcpy(map, &address, 8);
  return OK;
}
API cuGetErrorName(int code, const char** out) {
  *out = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NO_BINARY ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
       : code == BAD_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_INVALID_VALUE";
  return OK;
}
API cuGetErrorString(int, const char** out) { *out = "as the fake driver says"; return OK; }
