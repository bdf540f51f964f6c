/** How figures of tasks are written. */
import type { Figure } from '../../document/results.js';
import { fixed, percent, percents } from '../parts/numbers.js';

export const nameOf = ({ metric, filter }: Figure): string => (filter === 'none' ? metric : `${metric} (${filter})`);

export const valueOf = ({ value, isShare }: Figure): string => (isShare ? percent(value) : fixed(value, 4));

export const intervalOf = ({ interval, isShare }: Figure): string =>
  interval === null ? '–' : isShare ? percents(interval) : `${fixed(interval[0], 4)} to ${fixed(interval[1], 4)}`;

export const errorOf = ({ error, isShare }: Figure): string =>
  error === null ? '–' : isShare ? percent(error) : fixed(error, 4);
