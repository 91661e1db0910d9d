/* Stands in for libnvidia-ml.so.1: the real binding reads GPUs that exist only in a script.
 *
 * The environment variable FAKE_NVML names the script; it is read again whenever it was replaced. One "key value" a line, the last
 * that applies wins; a line that begins with "@SECONDS " applies from so long after the script was written. Keys:
 *   devices N                 driver N (a change makes this process's library too old: error 18)
 *   epoch N (a change makes NVML forget that it was initialised: error 1)
 *   gpuI.{uuid,util,memutil,total,used,reserved,power,processes,gpm,migs,lost}   gpuI.gpm.ID, gpuI.migJ.{uuid,gpm.ID}
 *   gpuI.sampled_at SECONDS   time of the newest utilisation sample (default: now)
 *   [gpuI.]error.FUNCTION CODE      [gpuI.]hang.FUNCTION SECONDS
 * A lost GPU stays lost for this process until NVML is initialised again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, MISMATCH = 18 };
enum { GPUS = 16, PARTS = 8, LINES = 512 };
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int gpu, part; } Device;
typedef struct { Device *device; int part; double at; } Sample;
typedef struct { double after; char key[96], value[96]; } Line;
typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } Process;
typedef struct { u64 at; union { u32 number; double real; } value; } Utilisation;
typedef struct { u32 id, code; double value; char *names[3]; } Metric;
typedef struct { u32 version, count; Sample *first, *second; Metric metrics[]; } Metrics;

static Line lines[LINES];
static int line_count, initialised, is_lost[GPUS];
static double written_at;
static struct stat seen;
static long driver = -1, epoch;
static Device devices[GPUS][PARTS + 1];

static double clock_of(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void read_script(void) {
  const char *path = getenv("FAKE_NVML");
  struct stat now;
  if (!path || stat(path, &now)) return;
  if (now.st_ino == seen.st_ino && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == seen.st_mtim.tv_sec) return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  char text[256];
  line_count = 0;
  while (line_count < LINES && fgets(text, sizeof text, file)) {
    Line *line = &lines[line_count];
    char *rest = text;
    line->after = *rest == '@' ? strtod(rest + 1, &rest) : 0;
    if (sscanf(rest, "%95s %95s", line->key, line->value) == 2) line_count++;
  }
  fclose(file);
  seen = now;
  written_at = (double)now.st_mtim.tv_sec + (double)now.st_mtim.tv_nsec / 1e9;
}

static const char *text_of(const char *key) {
  double since = clock_of(CLOCK_REALTIME) - written_at;
  for (int i = line_count - 1; i >= 0; i--)
    if (lines[i].after <= since && !strcmp(lines[i].key, key)) return lines[i].value;
  return NULL;
}

static double number(const char *key, double otherwise) {
  const char *text = text_of(key);
  return text ? atof(text) : otherwise;
}

static const char *key_of(const Device *d, int part, const char *name) {
  static char key[160];
  if (part < 0) snprintf(key, sizeof key, "gpu%d.%s", d->gpu, name);
  else snprintf(key, sizeof key, "gpu%d.mig%d.%s", d->gpu, part, name);
  return key;
}

static double of(const Device *d, const char *name, double otherwise) { return number(key_of(d, -1, name), otherwise); }

static int scripted(const Device *d, const char *function) {
  char name[120];
  snprintf(name, sizeof name, "hang.%s", function);
  double hang = d ? of(d, name, number(name, 0)) : number(name, 0);
  if (hang > 0) usleep((useconds_t)(hang * 1e6));
  snprintf(name, sizeof name, "error.%s", function);
  return (int)(d ? of(d, name, number(name, 0)) : number(name, 0));
}

static int enter(const Device *d, const char *function) {
  read_script();
  if (driver < 0) driver = (long)number("driver", 0);
  int code = scripted(d, function);
  if (code) return code;
  if (driver != (long)number("driver", 0)) return MISMATCH;
  if ((long)number("epoch", 0) != epoch) initialised = 0;
  if (!initialised) return UNINITIALIZED;
  if (!d) return OK;
  if (of(d, "lost", 0)) is_lost[d->gpu] = 1;
  return is_lost[d->gpu] ? LOST : OK;
}

#define ENTER(device) do { int code_ = enter(device, __func__); if (code_) return code_; } while (0)

int nvmlInitWithFlags(u32 flags) {
  (void)flags;
  read_script();
  if (driver < 0) driver = (long)number("driver", 0);
  int code = scripted(NULL, __func__);
  if (code) return code;
  if (driver != (long)number("driver", 0)) return MISMATCH;
  if (!initialised) memset(is_lost, 0, sizeof is_lost);
  epoch = (long)number("epoch", 0);
  for (int g = 0; g < GPUS; g++)
    for (int p = 0; p <= PARTS; p++) devices[g][p] = (Device){g, p - 1};
  initialised++;
  return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ENTER(NULL); initialised--; return OK; }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "fake error %d", code); return text; }
int nvmlSystemGetDriverVersion(char *out, u32 size) { ENTER(NULL); snprintf(out, size, "600.%ld", driver); return OK; }
int nvmlSystemGetNVMLVersion(char *out, u32 size) { ENTER(NULL); snprintf(out, size, "13.600.%ld", driver); return OK; }
int nvmlDeviceGetCount_v2(u32 *count) { ENTER(NULL); *count = (u32)number("devices", 1); return OK; }

static int uuid_of(const Device *d, char *out, size_t size) {
  const char *text = text_of(key_of(d, d->part, "uuid"));
  if (text) snprintf(out, size, "%s", text);
  else snprintf(out, size, "%s-%08d-0000-0000-0000-%012d", d->part < 0 ? "GPU" : "MIG", d->gpu, d->part < 0 ? 0 : d->part);
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **out) {
  ENTER(NULL);
  if (index >= (u32)number("devices", 1)) return INVALID;
  *out = &devices[index][0];
  return enter(*out, __func__);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
  ENTER(NULL);
  char name[96];
  for (int g = 0; g < (int)number("devices", 1); g++)
    for (int p = 0; p <= (int)of(&devices[g][0], "migs", 0); p++)
      if (uuid_of(&devices[g][p], name, sizeof name) == OK && !strcmp(name, uuid)) {
        *out = &devices[g][p];
        return enter(*out, __func__);
      }
  return NOT_FOUND;
}
int nvmlDeviceGetUUID(Device *d, char *out, u32 size) { ENTER(d); return uuid_of(d, out, size); }
int nvmlDeviceGetIndex(Device *d, u32 *index) { ENTER(d); *index = (u32)d->gpu; return OK; }
int nvmlDeviceGetName(Device *d, char *out, u32 size) { ENTER(d); snprintf(out, size, "Fake GPU"); return OK; }

int nvmlDeviceGetUtilizationRates(Device *d, u32 out[2]) {
  ENTER(d);
  if (d->part >= 0 || of(d, "migs", 0)) return NOT_SUPPORTED;
  out[0] = (u32)(int)of(d, "util", 0), out[1] = (u32)(int)of(d, "memutil", 0);
  return OK;
}
int nvmlDeviceGetSamples(Device *d, u32 type, u64 since, u32 *value_type, u32 *count, Utilisation *out) {
  ENTER(d);
  if (type != 1 || d->part >= 0 || of(d, "migs", 0)) return NOT_SUPPORTED;
  u64 at = (u64)(of(d, "sampled_at", clock_of(CLOCK_REALTIME)) * 1e6);
  if (at <= since) return NOT_FOUND;
  *value_type = 1, *count = 1;
  if (out) *out = (Utilisation){at, {.number = (u32)of(d, "util", 0)}};
  return OK;
}

static Memory2 memory_of(Device *d) {
  u64 total = (u64)of(d, "total", 80e9), used = (u64)of(d, "used", 1e9), reserved = (u64)of(d, "reserved", 5e8);
  return (Memory2){0x02000028, total, reserved, total - used - reserved, used};
}
int nvmlDeviceGetMemoryInfo(Device *d, Memory *out) {
  ENTER(d);
  Memory2 m = memory_of(d);
  *out = (Memory){m.total, m.free, m.used + m.reserved};
  return OK;
}
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *out) {
  ENTER(d);
  if (out->version != 0x02000028) return 25;
  *out = memory_of(d);
  return OK;
}

static int processes_of(Device *d, u32 *count, Process *out) {
  u32 room = *count, n = (u32)of(d, "processes", 0);
  *count = n;
  if (n > room) return TOO_SMALL;
  for (u32 i = 0; i < n; i++) out[i] = (Process){4000 + i, 1 << 20, ~0u, ~0u};
  return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device *d, u32 *n, Process *out) { ENTER(d); return processes_of(d, n, out); }
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, u32 *n, Process *out) { ENTER(d); return processes_of(d, n, out); }
int nvmlDeviceGetPowerUsage(Device *d, u32 *out) { ENTER(d); *out = (u32)of(d, "power", 70000); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Device *d, u32 *out) { ENTER(d); *out = 700000; return OK; }

int nvmlDeviceGetMigMode(Device *d, u32 *now, u32 *pending) { ENTER(d); *now = *pending = of(d, "migs", 0) > 0; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(Device *d, u32 *count) { ENTER(d); *count = PARTS - 1; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, u32 index, Device **out) {
  ENTER(d);
  if (index >= (u32)of(d, "migs", 0)) return NOT_FOUND;
  *out = &devices[d->gpu][index + 1];
  return OK;
}
int nvmlDeviceIsMigDeviceHandle(Device *d, u32 *out) { ENTER(d); *out = d->part >= 0; return OK; }
int nvmlDeviceGetGpuInstanceId(Device *d, u32 *out) { ENTER(d); if (d->part < 0) return NOT_SUPPORTED; *out = (u32)d->part + 7; return OK; }
int nvmlDeviceGetComputeInstanceId(Device *d, u32 *out) { ENTER(d); if (d->part < 0) return NOT_SUPPORTED; *out = 0; return OK; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *d, Device **out) {
  ENTER(d);
  if (d->part < 0) return INVALID;
  *out = &devices[d->gpu][0];
  return OK;
}

int nvmlGpmQueryDeviceSupport(Device *d, u32 out[2]) { ENTER(d); out[1] = (u32)of(d, "gpm", 0); return OK; }
int nvmlGpmSampleAlloc(Sample **out) { ENTER(NULL); return (*out = calloc(1, sizeof **out)) ? OK : 20; }
int nvmlGpmSampleFree(Sample *sample) { ENTER(NULL); free(sample); return OK; }
int nvmlGpmSampleGet(Device *d, Sample *sample) {
  ENTER(d);
  if (!of(d, "gpm", 0) || d->part >= 0 || of(d, "migs", 0)) return NOT_SUPPORTED;
  *sample = (Sample){d, -1, clock_of(CLOCK_MONOTONIC)};
  return OK;
}
int nvmlGpmMigSampleGet(Device *d, u32 instance, Sample *sample) {
  ENTER(d);
  if (d->part >= 0 || instance < 7 || instance >= 7 + (u32)of(d, "migs", 0)) return INVALID;
  *sample = (Sample){d, (int)instance - 7, clock_of(CLOCK_MONOTONIC)};
  return OK;
}
int nvmlGpmMetricsGet(Metrics *get) {
  ENTER(get->second->device);
  if (get->version != 1 || get->second->at - get->first->at < 0.1) return INVALID;
  for (u32 i = 0; i < get->count; i++) {
    char name[24];
    snprintf(name, sizeof name, "gpm.%u", get->metrics[i].id);
    const char *text = text_of(key_of(get->second->device, get->second->part, name));
    get->metrics[i].code = text ? OK : NOT_SUPPORTED;
    get->metrics[i].value = text ? atof(text) : 0;
  }
  return OK;
}
