/** Every setting that comes from the environment: the only reader of process.env. */
import { userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';

export interface Settings {
  /** TILEWRIGHT_CC: C compiler for generated kernels; otherwise cc, gcc and clang are looked for on PATH. */
  readonly cc: string | undefined;
  /**
   * TILEWRIGHT_CACHE: folder of compiled kernels, plans and checked tokenizers; otherwise tilewright under
   * XDG_CACHE_HOME or ~/.cache. Absent where there is no home folder either.
   */
  readonly cacheDir: string | undefined;
  /** TILEWRIGHT_PLAN_CACHE: `none` plans a model whenever it is opened, and keeps no plan. */
  readonly usesPlanCache: boolean;
  /**
   * TILEWRIGHT_CACHE_LIMIT: what all that may take there, such as `500MiB`; otherwise 2GiB. `none`: no
   * limit.
   */
  readonly cacheLimit: string | undefined;
  /**
   * HF_HUB_CACHE: where data sets of the hub are looked for; otherwise hub under HF_HOME or ~/.cache/huggingface. Empty
   * where there is no home folder either.
   */
  readonly hubCaches: readonly string[];
  /** HF_DATASETS_CACHE: converted copies of `datasets`, which are not read; otherwise datasets under HF_HOME. */
  readonly datasetsCache: string | undefined;
  /** PATH: where compilers are looked for. */
  readonly path: string;
  /** TILEWRIGHT_NVRTC: NVRTC's shared library or the folder it is in; otherwise it is looked for. */
  readonly nvrtc: string | undefined;
  /**
   * TILEWRIGHT_NVCC: nvcc to compile CUDA kernels with, instead of NVRTC; otherwise nvcc on PATH where NVRTC is absent.
   */
  readonly nvcc: string | undefined;
  /**
   * TILEWRIGHT_CUBLASLT: cuBLASLt's shared library, the tuner's rival; otherwise it is looked for as NVRTC is. `none`:
   * no rival.
   */
  readonly cublasLt: string | undefined;
  /** LD_LIBRARY_PATH: where NVRTC and cuBLASLt are looked for first. */
  readonly libraryPath: string;
  /** CUDA_HOME, CUDA_PATH, and where toolkits are installed by default; `*` stands for any version. */
  readonly cudaToolkits: readonly string[];
  /** VIRTUAL_ENV, CONDA_PREFIX, and where Pythons are installed by default: a wheel of theirs may hold NVRTC. */
  readonly pythonPrefixes: readonly string[];
  /** TILEWRIGHT_CUDA_DRIVER: full path of the CUDA driver's library; otherwise the system's libcuda.so.1. */
  readonly cudaDriver: string | undefined;
  /**
   * TILEWRIGHT_DEVICE_TIMEOUT: seconds without an answer after which a device counts as hung; otherwise 180 for a GPU,
   * 1800 for a CPU.
   */
  readonly deviceTimeout: number | undefined;
  /**
   * TILEWRIGHT_DEVICE_MEMORY: what weights and activations may take of each of several devices, such as `40GiB`;
   * otherwise what there is.
   */
  readonly deviceMemory: string | undefined;
  /**
   * TILEWRIGHT_STEP_TOKENS: most tokens of a step of `generate` in which texts wait for their next token; otherwise
   * what was measured, or 2048.
   */
  readonly stepTokens: number | undefined;
  /**
   * TILEWRIGHT_ROPE_ROUNDING: `bf16` or `f16` rounds rotary frequencies to that type, as a PyTorch program has them
   * that casts a whole model with its buffers (`model.to(torch.bfloat16)`, `model.half()`); otherwise they are exact.
   */
  readonly ropeRounding: string | undefined;
  /**
   * TILEWRIGHT_WINDOW: most documents of tasks that are held and planned at a time; otherwise 8192.
   */
  readonly windowDocuments: number | undefined;
  /**
   * TILEWRIGHT_PEERS: `none` lets no GPU reach another's memory, where that hangs or changes bits; everything goes
   * through the host.
   */
  readonly usesPeers: boolean;
  /**
   * TILEWRIGHT_COMPUTE_SANITIZER: the tool that GPU tests run under; otherwise compute-sanitizer on PATH or in a
   * toolkit.
   */
  readonly computeSanitizer: string | undefined;
  /** TILEWRIGHT_CHROMIUM: full path of the browser in which pages are tested; otherwise chromium on PATH. */
  readonly chromium: string | undefined;
  /** TILEWRIGHT_API_KEY: a key that clients of `serve` must show, beside those of --api-key and --api-key-file. */
  readonly apiKey: string | undefined;
  /** TILEWRIGHT_TEST_SEED: whole number from which the GPU tests draw shapes and schedules; 1 by default. */
  readonly testSeed: number;
  /**
   * TILEWRIGHT_SHARDS: number of shards, for a scheduler that tells a process its number only (Kubernetes' Indexed
   * Jobs).
   */
  readonly shards: string | undefined;
  /** SLURM_ARRAY_TASK_ID, and _COUNT, _MIN, _MAX, _STEP of the array: which shard a task of a Slurm array is. */
  readonly slurmArray: SlurmArray | undefined;
  /** SLURM_PROCID, from 0, and SLURM_NTASKS: which shard a process of one srun is. */
  readonly slurmTask: { readonly id: string; readonly count: string | undefined } | undefined;
  /** JOB_COMPLETION_INDEX: which shard a pod of a Kubernetes Indexed Job is, from 0. */
  readonly jobCompletionIndex: string | undefined;
  /** NO_COLOR: any value but none asks for no colours. */
  readonly noColour: boolean;
  /** FORCE_COLOR: colours whatever the stream is; `0` or `false`: never. Undefined where it is not set. */
  readonly forceColour: boolean | undefined;
  /** TERM=dumb: the terminal understands no escape sequences. */
  readonly isDumb: boolean;
  /** NODE_OPTIONS: flags of Node's, for all that V8 compiles. */
  readonly nodeOptions: string | undefined;
  /** TILEWRIGHT_DEBUG: any value but 0 prints the stack of an unexpected error. */
  readonly isDebug: boolean;
  /** TILEWRIGHT_VERIFY: any value but 0 verifies what every pass leaves; otherwise only what the last one leaves is. */
  readonly verifiesPasses: boolean;
}

/** Texts as Slurm sets them. */
export interface SlurmArray {
  readonly id: string;
  readonly count: string | undefined;
  readonly min: string | undefined;
  readonly max: string | undefined;
  readonly step: string | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** An empty variable counts as unset. */
function text(environment: Environment, name: string): string | undefined {
  const value = environment[name];
  return value === undefined || value === '' ? undefined : value;
}

/** An absolute path; others count as unset, lest they mean another folder wherever a command is started. */
function folder(environment: Environment, name: string): string | undefined {
  const value = text(environment, name);
  return value !== undefined && isAbsolute(value) ? value : undefined;
}

/** HOME, or what the user database says; undefined for a user id that it does not know (in a container). */
function home(environment: Environment): string | undefined {
  const stated = folder(environment, 'HOME');
  if (stated !== undefined) return stated;
  try {
    return userInfo().homedir;
  } catch {
    return undefined;
  }
}

/** Where the Hugging Face libraries keep what they download: HF_HUB_CACHE, hub under HF_HOME, or their default. */
function hubCaches(environment: Environment): string[] {
  const stated = text(environment, 'HF_HUB_CACHE') ?? text(environment, 'HUGGINGFACE_HUB_CACHE');
  if (stated !== undefined) return [stated];
  const root = hubHome(environment);
  return root === undefined ? [] : [join(root, 'hub')];
}

function hubHome(environment: Environment): string | undefined {
  const stated = text(environment, 'HF_HOME');
  if (stated !== undefined) return stated;
  const caches = folder(environment, 'XDG_CACHE_HOME');
  if (caches !== undefined) return join(caches, 'huggingface');
  const own = home(environment);
  return own === undefined ? undefined : join(own, '.cache', 'huggingface');
}

function datasetsCache(environment: Environment): string | undefined {
  const stated = text(environment, 'HF_DATASETS_CACHE');
  const root = hubHome(environment);
  return stated ?? (root === undefined ? undefined : join(root, 'datasets'));
}

function cacheDir(environment: Environment): string | undefined {
  const stated = text(environment, 'TILEWRIGHT_CACHE');
  if (stated !== undefined) return stated;
  const caches = folder(environment, 'XDG_CACHE_HOME');
  if (caches !== undefined) return join(caches, 'tilewright');
  const own = home(environment);
  return own === undefined ? undefined : join(own, '.cache', 'tilewright');
}

/** NaN if it is not a number. */
function number(environment: Environment, name: string): number | undefined {
  const value = text(environment, name);
  return value === undefined ? undefined : Number(value);
}

/** False for `0` and `false`; undefined where it is not set. */
function flag(environment: Environment, name: string): boolean | undefined {
  const value = text(environment, name);
  return value === undefined ? undefined : value !== '0' && value !== 'false';
}

const texts = (environment: Environment, names: readonly string[]): string[] =>
  names.flatMap((name) => text(environment, name) ?? []);

function slurmArray(environment: Environment): SlurmArray | undefined {
  const of = (name: string): string | undefined => text(environment, `SLURM_ARRAY_TASK_${name}`);
  const id = of('ID');
  return id === undefined ? undefined : { id, count: of('COUNT'), min: of('MIN'), max: of('MAX'), step: of('STEP') };
}

function slurmTask(environment: Environment): Settings['slurmTask'] {
  const id = text(environment, 'SLURM_PROCID');
  return id === undefined ? undefined : { id, count: text(environment, 'SLURM_NTASKS') };
}

/** Reads the settings now; tests pass an environment of their own. */
export function readSettings(environment: Environment = process.env): Settings {
  return {
    cc: text(environment, 'TILEWRIGHT_CC'),
    cacheDir: cacheDir(environment),
    usesPlanCache: text(environment, 'TILEWRIGHT_PLAN_CACHE') !== 'none',
    cacheLimit: text(environment, 'TILEWRIGHT_CACHE_LIMIT'),
    hubCaches: hubCaches(environment),
    datasetsCache: datasetsCache(environment),
    path: text(environment, 'PATH') ?? '',
    chromium: text(environment, 'TILEWRIGHT_CHROMIUM'),
    nvrtc: text(environment, 'TILEWRIGHT_NVRTC'),
    nvcc: text(environment, 'TILEWRIGHT_NVCC'),
    cublasLt: text(environment, 'TILEWRIGHT_CUBLASLT'),
    libraryPath: text(environment, 'LD_LIBRARY_PATH') ?? '',
    cudaToolkits: [...texts(environment, ['CUDA_HOME', 'CUDA_PATH']), '/usr/local/cuda', '/usr/local/cuda-*'],
    pythonPrefixes: [
      ...texts(environment, ['VIRTUAL_ENV', 'CONDA_PREFIX']),
      ...['.local', 'miniconda3', 'anaconda3', 'miniforge3', '.pyenv/versions/*'].flatMap((name) => {
        const own = home(environment);
        return own === undefined ? [] : [join(own, name)];
      }),
      '/usr/local',
      '/usr',
      '/opt/conda',
    ],
    cudaDriver: text(environment, 'TILEWRIGHT_CUDA_DRIVER'),
    deviceTimeout: number(environment, 'TILEWRIGHT_DEVICE_TIMEOUT'),
    deviceMemory: text(environment, 'TILEWRIGHT_DEVICE_MEMORY'),
    stepTokens: number(environment, 'TILEWRIGHT_STEP_TOKENS'),
    ropeRounding: text(environment, 'TILEWRIGHT_ROPE_ROUNDING'),
    windowDocuments: number(environment, 'TILEWRIGHT_WINDOW'),
    usesPeers: text(environment, 'TILEWRIGHT_PEERS') !== 'none',
    computeSanitizer: text(environment, 'TILEWRIGHT_COMPUTE_SANITIZER'),
    apiKey: text(environment, 'TILEWRIGHT_API_KEY'),
    testSeed: Number(text(environment, 'TILEWRIGHT_TEST_SEED') ?? '1'),
    shards: text(environment, 'TILEWRIGHT_SHARDS'),
    slurmArray: slurmArray(environment),
    slurmTask: slurmTask(environment),
    jobCompletionIndex: text(environment, 'JOB_COMPLETION_INDEX'),
    noColour: text(environment, 'NO_COLOR') !== undefined,
    forceColour: flag(environment, 'FORCE_COLOR'),
    isDumb: text(environment, 'TERM') === 'dumb',
    nodeOptions: text(environment, 'NODE_OPTIONS'),
    isDebug: (text(environment, 'TILEWRIGHT_DEBUG') ?? '0') !== '0',
    verifiesPasses: (text(environment, 'TILEWRIGHT_VERIFY') ?? '0') !== '0',
  };
}

/**
 * Threads in which a process of devices waits for calls and reads files: two calls of each of six models, and some for
 * files. With Node's four, the calls of a third model would wait for those of two others.
 */
const DEVICE_THREADS = '16';

/** The environment of a process that owns devices: this one's, with more threads unless UV_THREADPOOL_SIZE says so. */
export const deviceEnvironment = (environment: Environment = process.env): Environment => ({
  UV_THREADPOOL_SIZE: DEVICE_THREADS,
  ...environment,
});

/** What a variable holds whose name a configuration gives; an empty one counts as unset. */
export const readVariable = (name: string, environment: Environment = process.env): string | undefined =>
  text(environment, name);
