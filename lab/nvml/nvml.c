/* GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * Copyright: (c) 2026, gpushare.eks contributors
 *
 * The lab's libnvidia-ml.so.1: the part of NVML that a probe calls, answered from a text file.
 * Signatures, structures and codes follow NVIDIA's NVML API reference
 * (https://docs.nvidia.com/deploy/nvml-api/), so a caller cannot tell the library from the real one.
 *
 * LAB_NVML_STATE names the file. It is read again at the next call after it was replaced, so that a
 * process which keeps NVML open sees what becomes of its GPUs. Its lines:
 *   driver <version>        cuda <13000>
 *   gpu <uuid> <total MiB> <reserved MiB> <used MiB> <cc as 7.5> <mig: - | 0 | 1> <ecc: - | 0 | 1> <name>
 *   slice <gpu index> <uuid> <total MiB> <reserved MiB> <used MiB> <name>      one MIG device
 *   process <gpu index> <pid> <used MiB>
 *   uncorrected <gpu index> <errors of ECC memory since the driver was loaded>
 *   fault <function | *> <gpu index | *> <code>      or      ... hang <seconds>
 * `used` counts without the reserve, as in version 2 of the memory structure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};
enum { MAX_DEVICES = 64, MAX_ROWS = 256, UNSUPPORTED = -1 };

typedef unsigned long long u64;
#define LEFT(whole, part) ((whole) > (part) ? (whole) - (part) : 0)

typedef struct {
    int parent; /* index of the GPU that a MIG device is cut from, -1 for a GPU */
    int number; /* index among the GPUs, or among the slices of its parent */
    char uuid[96], name[96];
    u64 total, reserved, used; /* MiB */
    int cc_major, cc_minor, mig, ecc;
    u64 uncorrected;
} device_t;

typedef struct { int gpu; unsigned pid; u64 used; } process_row;
typedef struct { char function[80]; int gpu, code, hang; } fault_row;

typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned pid; u64 usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

static device_t devices[MAX_DEVICES];
static process_row processes[MAX_ROWS];
static fault_row faults[MAX_ROWS];
static int device_count, process_count, fault_count, users;
static char driver[80], cuda[16];
static struct stat seen; /* of the state file as it was read last */

static int flag(const char *text) { return text[0] == '-' ? UNSUPPORTED : atoi(text); }
static int index_of(const char *text) { return text[0] == '*' ? -1 : atoi(text); }

static int count(int parent) {
    int n = 0;
    for (int i = 0; i < device_count; i++) n += devices[i].parent == parent;
    return n;
}

static device_t *find(int parent, unsigned number) {
    for (int i = 0; i < device_count; i++)
        if (devices[i].parent == parent && devices[i].number == (int)number) return &devices[i];
    return NULL;
}

static void read_fault(const char *line) {
    fault_row row = {0};
    char gpu[16], what[16];
    if (fault_count == MAX_ROWS || sscanf(line, "fault %79s %15s %15s %d", row.function, gpu, what, &row.hang) < 3) return;
    row.gpu = index_of(gpu);
    row.code = strcmp(what, "hang") ? atoi(what) : SUCCESS;
    faults[fault_count++] = row;
}

static void read_line(const char *line) {
    device_t d = {.parent = -1, .mig = UNSUPPORTED, .ecc = UNSUPPORTED};
    process_row p;
    char mig[8], ecc[8];
    unsigned gpu;
    u64 errors;
    if (sscanf(line, "uncorrected %u %llu", &gpu, &errors) == 2) {
        if (find(-1, gpu)) find(-1, gpu)->uncorrected = errors;
        return;
    }
    if (sscanf(line, "driver %79s", driver) == 1 || sscanf(line, "cuda %15s", cuda) == 1) return;
    if (!strncmp(line, "fault ", 6)) { read_fault(line); return; }
    if (sscanf(line, "process %d %u %llu", &p.gpu, &p.pid, &p.used) == 3) {
        if (process_count < MAX_ROWS) processes[process_count++] = p;
        return;
    }
    if (device_count == MAX_DEVICES) return;
    if (sscanf(line, "gpu %95s %llu %llu %llu %d.%d %7s %7s %95[^\n]", d.uuid, &d.total, &d.reserved,
               &d.used, &d.cc_major, &d.cc_minor, mig, ecc, d.name) == 9) {
        d.mig = flag(mig);
        d.ecc = flag(ecc);
    } else if (sscanf(line, "slice %d %95s %llu %llu %llu %95[^\n]", &d.parent, d.uuid, &d.total,
                      &d.reserved, &d.used, d.name) != 6) {
        return;
    }
    d.number = count(d.parent);
    devices[device_count++] = d;
}

/* Read the state file if it is another one than before; 0 where there is none. A handle that a
 * caller holds stays good: GPUs keep their places in `devices`. */
static int refresh(void) {
    char line[512];
    struct stat now;
    const char *path = getenv("LAB_NVML_STATE");
    if (!path || stat(path, &now)) return 0;
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) return 1;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    fstat(fileno(file), &seen);
    device_count = process_count = fault_count = 0;
    while (fgets(line, sizeof line, file)) read_line(line);
    fclose(file);
    return 1;
}

static fault_row *fault_of(const char *function, int gpu) {
    for (int i = 0; i < fault_count; i++) {
        fault_row *row = &faults[i];
        /* A fault of one GPU leaves calls alone that name no GPU. */
        if (strcmp(row->function, "*") && strcmp(row->function, function)) continue;
        if (row->gpu < 0 || row->gpu == gpu) return row;
    }
    return NULL;
}

/* The code that a fault gives to this call; a hang lasts as long as the fault, at most. */
static int fault(const char *function, int gpu) {
    fault_row *row;
    for (int waited_ms = 0;; waited_ms += 50) {
        if (!refresh()) return DRIVER_NOT_LOADED;
        row = fault_of(function, gpu);
        if (!row) return SUCCESS;
        if (row->code || waited_ms >= row->hang * 1000) return row->code;
        usleep(50 * 1000);
    }
}

static int text(const char *value, char *out, unsigned size) {
    if (!out) return INVALID_ARGUMENT;
    if (strlen(value) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

#define READY(gpu) do { \
    if (users == 0) return UNINITIALIZED; \
    int code = fault(__func__, gpu); \
    if (code) return code; \
} while (0)
#define GPU_OF(d) ((d)->parent < 0 ? (d)->number : (d)->parent)
#define READY_DEVICE(d) do { \
    if (users == 0) return UNINITIALIZED; \
    if (!(d)) return INVALID_ARGUMENT; \
    READY(GPU_OF(d)); \
    if ((d) - devices >= device_count) return INVALID_ARGUMENT; \
} while (0)

int nvmlInit_v2(void) {
    int code = fault(__func__, -1);
    users += code == SUCCESS;
    return code;
}

int nvmlShutdown(void) {
    READY(-1);
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    case 25: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    READY(-1);
    return text(driver, version, size);
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    READY(-1);
    if (!version) return INVALID_ARGUMENT;
    *version = atoi(cuda);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    READY(-1);
    if (!version) return INVALID_ARGUMENT;
    *version = atoi(cuda);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *number) {
    READY(-1);
    if (!number) return INVALID_ARGUMENT;
    *number = (unsigned)count(-1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    READY((int)index);
    if (!device || !find(-1, index)) return INVALID_ARGUMENT;
    *device = find(-1, index);
    return SUCCESS;
}

int nvmlDeviceGetUUID(device_t *d, char *uuid, unsigned size) {
    READY_DEVICE(d);
    return text(d->uuid, uuid, size);
}

int nvmlDeviceGetName(device_t *d, char *name, unsigned size) {
    READY_DEVICE(d);
    return text(d->name, name, size);
}

/* Memory in use by processes, the figure of `used` where no process is listed. */
static u64 used_mib(device_t *d) {
    u64 sum = d->used;
    for (int i = 0; i < process_count; i++)
        if (d->parent < 0 && processes[i].gpu == d->number) sum += processes[i].used;
    return sum;
}

int nvmlDeviceGetMemoryInfo(device_t *d, nvmlMemory_t *memory) {
    READY_DEVICE(d);
    if (!memory) return INVALID_ARGUMENT;
    u64 used = used_mib(d) + d->reserved; /* version 1 hides the reserve in `used` */
    *memory = (nvmlMemory_t){d->total << 20, LEFT(d->total, used) << 20, used << 20};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device_t *d, nvmlMemory_v2_t *memory) {
    READY_DEVICE(d);
    if (!memory) return INVALID_ARGUMENT;
    if (memory->version != (sizeof(nvmlMemory_v2_t) | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    u64 used = used_mib(d);
    memory->total = d->total << 20;
    memory->reserved = d->reserved << 20;
    memory->used = used << 20;
    memory->free = LEFT(d->total, d->reserved + used) << 20;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
    READY_DEVICE(d);
    if (!major || !minor) return INVALID_ARGUMENT;
    device_t *gpu = find(-1, (unsigned)GPU_OF(d));
    *major = gpu->cc_major;
    *minor = gpu->cc_minor;
    return SUCCESS;
}

static int mode(int value, unsigned *current, unsigned *pending) {
    if (!current || !pending) return INVALID_ARGUMENT;
    if (value == UNSUPPORTED) return NOT_SUPPORTED;
    *current = *pending = (unsigned)value;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device_t *d, unsigned *current, unsigned *pending) {
    READY_DEVICE(d);
    return mode(d->mig, current, pending);
}

int nvmlDeviceGetEccMode(device_t *d, unsigned *current, unsigned *pending) {
    READY_DEVICE(d);
    return mode(d->ecc, current, pending);
}

int nvmlDeviceGetTotalEccErrors(device_t *d, unsigned kind, unsigned counter, u64 *errors) {
    READY_DEVICE(d);
    if (!errors || kind > 1 || counter > 1) return INVALID_ARGUMENT;
    if (d->ecc != 1) return NOT_SUPPORTED;
    *errors = kind == 1 ? d->uncorrected : 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *number) {
    READY_DEVICE(d);
    if (!number) return INVALID_ARGUMENT;
    *number = d->mig == UNSUPPORTED ? 0 : 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned index, device_t **slice) {
    READY_DEVICE(d);
    if (!slice || d->parent >= 0) return INVALID_ARGUMENT;
    if (d->mig == UNSUPPORTED) return NOT_SUPPORTED;
    *slice = find(d->number, index);
    return *slice ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *number, nvmlProcessInfo_t *infos) {
    READY_DEVICE(d);
    if (!number) return INVALID_ARGUMENT;
    unsigned room = infos ? *number : 0, found = 0;
    for (int i = 0; i < process_count; i++) {
        if (d->parent >= 0 || processes[i].gpu != d->number) continue;
        if (found < room) /* all ones: not in a MIG instance */
            infos[found] = (nvmlProcessInfo_t){processes[i].pid, processes[i].used << 20, ~0u, ~0u};
        found++;
    }
    *number = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(device_t *d, nvmlPciInfo_t *pci) {
    READY_DEVICE(d);
    if (!pci) return INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    pci->device = 0x1e + (unsigned)GPU_OF(d); /* EC2 shows its first GPU at 00:1e.0 */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:00:%02X.0", pci->device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "00000000:00:%02X.0", pci->device & 0xff);
    return SUCCESS;
}
