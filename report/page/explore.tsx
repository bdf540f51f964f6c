/** The page that `tilewright explore` writes: what every pass made of a model, and the kernels that it became. */
import { render } from 'preact';
import { KernelsView } from './explore/KernelsView.js';
import { PassesView } from './explore/PassesView.js';
import { Frame, type SectionView } from './parts/Frame.js';

const SECTIONS: readonly SectionView[] = [
  { name: 'passes', title: 'Passes', View: PassesView },
  { name: 'kernels', title: 'Kernels', View: KernelsView },
];

render(<Frame sections={SECTIONS} />, document.getElementById('page')!);
