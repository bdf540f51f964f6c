/** The page that `tilewright report` writes. A section of it: a line here, a view, and a collector of its data. */
import { render } from 'preact';
import { ComparisonView } from './comparison/ComparisonView.js';
import { ResultsView } from './figures/ResultsView.js';
import { MachineView } from './machine/MachineView.js';
import { QuestionsView } from './questions/QuestionsView.js';
import { Frame, type SectionView } from './shell/Frame.js';
import { TuningView } from './tuning/TuningView.js';

/** In the order of the tabs. */
const SECTIONS: readonly SectionView[] = [
  { name: 'results', title: 'Results', View: ResultsView },
  { name: 'comparison', title: 'Comparison', View: ComparisonView },
  { name: 'questions', title: 'Questions', View: QuestionsView },
  { name: 'machine', title: 'Machine', View: MachineView },
  { name: 'tuning', title: 'Tuning', View: TuningView },
];

render(<Frame sections={SECTIONS} />, document.getElementById('page')!);
