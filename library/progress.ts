/** Progress as events, for programs. */
import type { Amount, RunProgress, Ui } from '../driver/requests.js';

export type ProgressEvent =
  /** A step began: 'compile kernels', 'load weights', 'score'. */
  | { readonly kind: 'phase'; readonly name: string; readonly detail?: string }
  /** How far the current step is, 0 to 1. */
  | { readonly kind: 'step'; readonly fraction: number; readonly detail?: string; readonly amount?: Amount }
  /** How far scoring is. */
  | ({ readonly kind: 'scored' } & RunProgress)
  /** The tuner's table, whole. */
  | { readonly kind: 'table'; readonly lines: readonly string[] }
  | { readonly kind: 'note' | 'warning'; readonly text: string };

export type ProgressListener = (event: ProgressEvent) => void;

/** A Ui that reports to a listener. */
export function uiOf(tell: ProgressListener = () => undefined): Ui {
  const more = (detail: string | undefined): { readonly detail?: string } => (detail === undefined ? {} : { detail });
  return {
    phase: (name, detail) => tell({ kind: 'phase', name, ...more(detail) }),
    step: (fraction, detail) =>
      tell({ kind: 'step', fraction, ...(typeof detail === 'object' ? { amount: detail } : more(detail)) }),
    run: (progress) => tell({ kind: 'scored', ...progress }),
    table: (lines) => tell({ kind: 'table', lines }),
    note: (text) => tell({ kind: 'note', text }),
    detail: (text) => tell({ kind: 'note', text }),
    warn: (text) => tell({ kind: 'warning', text }),
  };
}
