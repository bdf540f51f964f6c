/** Matrices that stay in 4 bits, with scales for groups of columns. */
import { GROUP_SIZES } from '../groups.js';
import { op, TypeMismatch } from './opDef.js';

export const GROUPED = {
  grouped: op({
    summary: 'grouped(w[N, K]) {group}: w, which is stored as codes of 4 bits with a scale for each `group` columns',
    fuse: 'movement',
    operands: { w: 'one' },
    attributes: { group: 'number' },
    infer: ({ w }, { group }) => {
      if (w.dtype !== 'f32' || w.shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
      if (!GROUP_SIZES.some((size) => size === group))
        throw new TypeMismatch(`there are no groups of ${group} columns`);
      return w;
    },
    evaluate: ({ w }, _attributes, shape) => ({ shape, data: w.data }),
  }),
};
