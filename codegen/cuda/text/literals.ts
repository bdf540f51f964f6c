/** Numbers as CUDA text. */
import { literalsOf } from '../../literals.js';

export const { float: floatLiteral, double: doubleLiteral } = literalsOf({ nan: 'tw_nan()', infinity: 'tw_inf()' });
