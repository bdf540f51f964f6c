/* The fake driver's result codes, and what the driver calls them. */
typedef int Result;
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_TIMEOUT = 702,
  PEERS_ALREADY = 704,
  PEERS_UNSUPPORTED = 217
};

static const struct { int result; const char *name, *text;
} RESULTS[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
};
EXPORT Result cuGetErrorName(int code, const char **name) {
  for (size_t i = 0; i < sizeof RESULTS / sizeof RESULTS[0]; i++)
    if (RESULTS[i].result == code) return *name = RESULTS[i].name, OK;
  return INVALID_VALUE;
}
EXPORT Result cuGetErrorString(int code, const char **text) {
  for (size_t i = 0; i < sizeof RESULTS / sizeof RESULTS[0]; i++)
    if (RESULTS[i].result == code) return *text = RESULTS[i].text, OK;
  return INVALID_VALUE;
}
