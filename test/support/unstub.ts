/** Behind each file that shares its process with others: its environment and its globals are what they were. */
import { afterAll, vi } from 'vitest';

afterAll(() => {
  vi.unstubAllEnvs();
  vi.unstubAllGlobals();
});
