/** What of a GPU's software is installed: asked of the libraries themselves, which are loaded and nothing more. */
import koffi from 'koffi';

export interface LibraryVersion {
  readonly library: string;
  /** `13.0`; undefined where the library is there and does not tell. */
  readonly version: string | undefined;
}

const DRIVER = ['libcuda.so.1'] as const;
/** Newest first; the unversioned name belongs to a development installation. */
const NVRTC = ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so.11.2', 'libnvrtc.so'] as const;

type Library = ReturnType<typeof koffi.load>;

function loadFirst(names: readonly string[]): { name: string; library: Library } | undefined {
  for (const name of names) {
    try {
      return { name, library: koffi.load(name) };
    } catch {
      // Not installed under this name.
    }
  }
  return undefined;
}

/** The GPU driver's CUDA version: cuDriverGetVersion writes 1000·major + 10·minor and needs no GPU. */
export function probeDriver(names: readonly string[] = DRIVER): LibraryVersion | undefined {
  const found = loadFirst(names);
  if (found === undefined) return undefined;
  try {
    const version = new Int32Array(1);
    const status: unknown = found.library.func('int cuDriverGetVersion(_Out_ int *version)')(version);
    const [value = 0] = version;
    return { library: found.name, version: status === 0 && value > 0 ? `${Math.floor(value / 1000)}.${Math.floor((value % 1000) / 10)}` : undefined };
  } catch {
    return { library: found.name, version: undefined };
  }
}

/** The run-time compiler's version. */
export function probeNvrtc(names: readonly string[] = NVRTC): LibraryVersion | undefined {
  const found = loadFirst(names);
  if (found === undefined) return undefined;
  try {
    const [major, minor] = [new Int32Array(1), new Int32Array(1)];
    const status: unknown = found.library.func('int nvrtcVersion(_Out_ int *major, _Out_ int *minor)')(major, minor);
    return { library: found.name, version: status === 0 ? `${major[0] ?? 0}.${minor[0] ?? 0}` : undefined };
  } catch {
    return { library: found.name, version: undefined };
  }
}
