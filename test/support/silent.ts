/** Somebody who is told of progress, notes and warnings, and ignores them. */
import type { Ui } from '../../driver/requests.js';

const ignore = (): void => undefined;

export const SILENT: Ui = {
  phase: ignore,
  step: ignore,
  run: ignore,
  table: ignore,
  note: ignore,
  detail: ignore,
  warn: ignore,
};
