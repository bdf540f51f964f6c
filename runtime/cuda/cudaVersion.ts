/** Which compiler versions make code for an architecture, and which of that code a driver loads. */
import type { CudaArch } from '../../ir/cuda.js';

export interface CudaVersion {
  readonly major: number;
  readonly minor: number;
}

/** First toolkit whose compiler knows the architecture with all that generated kernels use of it. */
const LEAST: Readonly<Record<CudaArch, CudaVersion>> = {
  sm_80: { major: 11, minor: 1 },
  sm_90a: { major: 12, minor: 0 },
};

export const versionText = ({ major, minor }: CudaVersion): string => `${major}.${minor}`;

const isBefore = (a: CudaVersion, b: CudaVersion): boolean =>
  a.major < b.major || (a.major === b.major && a.minor < b.minor);

/** cuDriverGetVersion's 1000·major + 10·minor. */
export const driverCudaVersion = (driverVersion: number): CudaVersion => ({
  major: Math.floor(driverVersion / 1000),
  minor: Math.floor((driverVersion % 1000) / 10),
});

/**
 * Why a compiler of that version is of no use for the architecture and driver, in one line; undefined where it is.
 * Within one major version a driver loads the cubins of newer minors (CUDA's minor version compatibility).
 * Without a driver version (compiling on a machine without a GPU) the driver is not asked.
 */
export function versionProblem(
  version: CudaVersion,
  arch: CudaArch,
  driverVersion: number | undefined,
): string | undefined {
  const least = LEAST[arch];
  if (isBefore(version, least))
    return `version ${versionText(version)} is too old for ${arch}, which needs ${versionText(least)} or later`;
  if (driverVersion === undefined) return undefined;
  const driver = driverCudaVersion(driverVersion);
  if (version.major > driver.major) {
    return (
      `version ${versionText(version)} is too new for the GPU driver, which ` +
      `supports CUDA ${versionText(driver)}: its kernels would not load`
    );
  }
  return undefined;
}
