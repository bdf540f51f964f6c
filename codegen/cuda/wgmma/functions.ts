/** What kernels on Hopper call: barriers in shared memory, boxes, clusters, and what epilogues exchange. */
import { render } from '../text/templates.js';

/** Barriers, and copies of boxes that they count. */
export const barrierFunctions = (): string => render('wgmmaBarriers', {}).trimEnd();

/** All that contractions call. `values`: those of the template, but for its barriers. */
export const contractionFunctions = (values: object): string =>
  render('wgmmaFunctions', { ...values, barriers: barrierFunctions() });
