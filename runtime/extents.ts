/** What native programs are told of a function's extents. */
import { extentIn, type Extents } from '../ir/extents.js';
import type { FunctionInterface } from '../ir/function.js';
import type { ProgramExtent } from './nativeProgram.js';

type Declared = Pick<FunctionInterface, 'extents'>;

/** The extents of programs that are bound for calls up to `most`, in the order in which kernels take them. */
export const programExtents = ({ extents }: Declared, most: Extents): readonly ProgramExtent[] =>
  extents.map(({ name }) => ({ name, most: extentIn(name, most) }));

/** The sizes of a call in the order of its programs' extents. */
export const sizesOf = ({ extents }: Declared, size: Extents): readonly number[] =>
  extents.map(({ name }) => extentIn(name, size));
