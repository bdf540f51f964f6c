/** `tune`: replaces an artifact's schedules by the best found within a budget. */
import type { TuneRequest, TuneResult, Ui } from './requests.js';

export function tuneModel(_request: TuneRequest, _ui: Ui): Promise<TuneResult> {
  return Promise.reject(new Error('not wired yet'));
}
