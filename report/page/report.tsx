/** The page that `tilewright report` writes. A section of it: a line here, a view, and a collector of its data. */
import { render } from 'preact';
import { Frame, type SectionView } from './parts/Frame.js';
import { ComparisonView } from './report/ComparisonView.js';
import { MachineView } from './report/MachineView.js';
import { QuestionsView } from './report/QuestionsView.js';
import { ResultsView } from './report/ResultsView.js';
import { SearchView } from './report/SearchView.js';
import { TuningView } from './report/TuningView.js';

/** In the order of the tabs. */
const SECTIONS: readonly SectionView[] = [
  { name: 'results', title: 'Results', View: ResultsView },
  { name: 'comparison', title: 'Comparison', View: ComparisonView },
  { name: 'search', title: 'Search', View: SearchView },
  { name: 'questions', title: 'Questions', View: QuestionsView },
  { name: 'machine', title: 'Machine', View: MachineView },
  { name: 'tuning', title: 'Tuning', View: TuningView },
];

render(<Frame sections={SECTIONS} />, document.getElementById('page')!);
