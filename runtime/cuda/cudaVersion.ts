/** Which compiler versions make code for an architecture, and which of that code a driver loads. */
import type { CudaArch } from '../../ir/cuda.js';

export interface CudaVersion {
  readonly major: number;
  readonly minor: number;
}

/** First toolkit whose compiler supports every feature of the architecture that generated kernels use. */
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
 * The reason, in one line, why a compiler of that version cannot be used for the architecture and driver; undefined if
 * it can. Within one major version a driver loads the cubins of newer minor versions (CUDA's minor version
 * compatibility). Without a driver version (compiling on a machine without a GPU) the driver is not considered.
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
