/** The C library of this process, and the error for native code that was built for a newer one. */
import { UserError } from '../errors.js';
import { isRecord } from '../system/json.js';

/** Version of glibc, such as `2.36`; undefined if another C library is used. */
export function glibcVersion(): string | undefined {
  const report: unknown = process.report.getReport();
  const header = isRecord(report) ? report['header'] : undefined;
  const version = isRecord(header) ? header['glibcVersionRuntime'] : undefined;
  return typeof version === 'string' ? version : undefined;
}

const LIBRARIES: Readonly<Record<string, string>> = {
  GLIBC: 'glibc',
  GLIBCXX: 'the C++ library GLIBCXX',
  CXXABI: 'the C++ library CXXABI',
};

/** The loader's error about a system library that is too old, for users; undefined for any other error. */
export function tooOldSystem(reason: string, has: string | undefined = glibcVersion()): UserError | undefined {
  const [, name = '', version = ''] = /version [`'](GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found/.exec(reason) ?? [];
  const library = LIBRARIES[name];
  if (library === undefined) return undefined;
  const here = has === undefined ? '' : `; here is glibc ${has}`;
  return new UserError(
    `This system is too old for the native addon, which needs ${library} ${version} or later${here}.`,
    'Use a newer system, or build on this one or one as old: npm ci && npm run build:native, ' +
      'npm run bundle for a bundle',
  );
}
