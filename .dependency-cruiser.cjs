// The import rule of docs/architecture.md, checked by `npm run lint`. Rooms are the top-level folders. A room may
// import itself, the rooms listed for it, npm packages, Node builtins and what COMMONS names.
// Type-only imports count: they are how a layering first goes wrong.

/** Root files that any room may import; they import nothing of the project. */
const ROOT_FILES = '^(settings|errors)[.]ts$';

/** What any room may import. */
const COMMONS = [ROOT_FILES, '^system/'];

/** What the driver puts together. */
const COMPOSED = [
  '^ir/',
  '^python/',
  '^models/',
  '^passes/',
  '^codegen/',
  '^runtime/',
  '^autotune/',
  '^tasks/',
  '^evaluate/',
  '^draft/',
  '^engine/',
  '^grammar/',
  '^search/',
  '^serve/',
  '^route/',
];

/**
 * What each room may import, and what the limit protects.
 * A value is a list of path patterns; the room itself and COMMONS are always allowed.
 */
const MAY_IMPORT = {
  // Files, JSON, processes and the shell: what every room needs of the operating system, and nothing of this project.
  system: [],
  // Both IRs are the language every other room speaks: they must be usable, and testable, with nothing else present.
  ir: [],
  // Python's values, texts and templates: of a task file or of a checkpoint, they mean the same.
  python: [],
  // A model is a description. It must not know which passes or backends will treat it.
  models: ['^ir/', '^python/'],
  // Passes decide; they must not depend on how code is printed or run, so that a second backend adds no pass.
  passes: ['^ir/'],
  // Code generation prints decisions made before it. No pass, no runtime: its output is a function of kernel IR.
  codegen: ['^ir/'],
  // A runtime executes a plan made elsewhere, perhaps long ago. Seeing only plan data, it cannot lean on the compiler.
  runtime: [
    '^ir/(plan|unit|function|extents|scoring|cuda|kernel|kernelAccess)[.]ts$',
    '^ir/(types|packing|storage|blocks|groups|microscaled|encoding|rounding)[.]ts$',
  ],
  // The tuner drives the compiler and the runtime, and nothing of theirs depends on being tuned.
  autotune: ['^ir/', '^passes/', '^codegen/', '^runtime/'],
  // Tasks turn files into requests: texts, not tokens. They know no model and nobody who scores them.
  tasks: ['^python/'],
  // Evaluation sees any engine as a Scorer: its tasks, trees and results are tested with a fake one.
  evaluate: ['^tasks/', '^python/'],
  // Grammars are matched byte by byte: tokens come in as bytes, masks go out.
  grammar: [],
  // Drafts are made of tokens alone: whoever proposes is tested, and compared, with finished texts.
  draft: ['^ir/'],
  // The engine sees any model as a DeviceModel: requests, pages and scheduling are tested with a fake one.
  engine: ['^ir/', '^python/', '^draft/'],
  // A search sees its models as a writer of steps and a judge of paths: methods are tested with made-up ones.
  search: ['^ir/', '^python/', '^models/', '^tasks/', '^draft/', '^engine/'],
  // Who answers a request is decided from what replicas say: the policy is tested, and simulated, with none. The proxy
  // refuses and admits as the server does.
  route: ['^serve/(apiError|http/keys|http/origins|http/requestHead)[.]ts$'],
  // The server sees devices through the engine: endpoints are tested with a fake one.
  serve: ['^ir/', '^python/', '^models/', '^tasks/', '^grammar/', '^draft/', '^engine/', '^search/'],
  // Results, traces and IR as pages: what is shown is read or handed in, and nothing here computes an answer.
  report: [
    '^ir/',
    '^python/',
    '^tasks/',
    '^evaluate/',
    '^search/(result|readResult|path)[.]ts$',
    '^autotune/(records|peaks)[.]ts$',
  ],
  // Wiring: where a model lies, on which devices, for which target, in which artifact. It knows no command.
  driver: COMPOSED,
  // The story of each command: what it reads, opens, does and reports. It knows no flags and no terminal.
  commands: [...COMPOSED, '^report/', '^driver/'],
  // The commands for programs: options that are checked, and models that stay open.
  library: [...COMPOSED, '^driver/', '^commands/'],
  // Flags in, calls out.
  cli: [...COMPOSED, '^report/', '^driver/', '^commands/'],
  // Benchmarks may measure anything, but nothing shipped depends on them.
  bench: [...COMPOSED, '^report/', '^driver/', '^commands/', '^library/', '^cli/'],
};

const TARGETS = `^(${[...Object.keys(MAY_IMPORT), 'test', 'scripts', 'index[.]ts$'].join('|')})(/|$)`;

const roomRules = Object.entries(MAY_IMPORT).map(([room, allowed]) => ({
  name: `room-${room}`,
  severity: 'error',
  comment: `${room}/ may import only ${room}/, system/, settings.ts, errors.ts ${allowed.join(' ')}`.trim(),
  from: { path: `^${room}/` },
  to: { path: TARGETS, pathNot: [`^${room}/`, ...COMMONS, ...allowed] },
}));

module.exports = {
  forbidden: [
    ...roomRules,
    {
      name: 'commons-import-nothing',
      severity: 'error',
      comment: "settings.ts and errors.ts are imported by every room, so an import of theirs would be everybody's.",
      from: { path: ROOT_FILES },
      to: { path: '[.]ts$', pathNot: ['node_modules'] },
    },
    {
      name: 'no-cycle',
      severity: 'error',
      comment: 'Files in a cycle can only be understood, loaded and tested together. Move what both need below them.',
      from: {},
      to: { circular: true },
    },
    {
      name: 'runtime-targets-on-top',
      severity: 'error',
      comment: 'What targets share lies below them: the files of runtime/ itself import no target, and cpu/ no cuda/.',
      from: { path: '^runtime/([^/]+[.]ts$|cpu/)' },
      to: { path: '^runtime/(cpu|cuda)/', pathNot: '^runtime/cpu/' },
    },
    {
      name: 'runtime-knows-no-cpu',
      severity: 'error',
      comment: 'As above, for the CPU.',
      from: { path: '^runtime/[^/]+[.]ts$' },
      to: { path: '^runtime/cpu/' },
    },
    {
      name: 'route-policy-is-pure',
      severity: 'error',
      comment: 'The policy runs in simulations and behind several front ends: it knows none, and no clock or socket.',
      from: { path: '^route/[^/]+[.]ts$' },
      to: { path: ['^route/proxy/', '^serve/'] },
    },
    {
      name: 'pages-know-documents-only',
      severity: 'error',
      comment: 'A page runs in a browser: of this project it sees the types and tables of documents, and no Node.',
      from: { path: '^report/(page|document)/' },
      to: {
        path: '.',
        pathNot: ['^report/(page|document)/', '^evaluate/startUp[.]ts$', '^system/(at|defined)[.]ts$', 'node_modules'],
      },
    },
    {
      name: 'pages-are-bundled',
      severity: 'error',
      comment: 'Documents must not depend on how they are shown. Only the bundler reads pages (scripts/buildDist.mjs).',
      from: { pathNot: '^report/page/' },
      to: { path: '^report/page/' },
    },
    {
      name: 'no-test-in-product',
      severity: 'error',
      comment: 'What ships must build without the tests.',
      from: { pathNot: '^(test/|vitest[.]config[.]ts$)' },
      to: { path: '^test/' },
    },
    {
      name: 'no-test-runner-on-a-gpu',
      severity: 'error',
      comment: 'The bundle runs test/gpu by Node itself, where no development package is.',
      from: { path: '^test/gpu/' },
      to: { path: 'node_modules/vitest', reachable: true },
    },
    {
      name: 'no-dev-package-in-product',
      severity: 'error',
      comment:
        'A development package is absent where tilewright is installed: list it under dependencies or do without. ' +
        'Scripts for a checkout may use them; buildAddon.mjs is the only script that is installed. Packages of pages ' +
        'are bundled with them.',
      from: { pathNot: ['^test/', '^report/page/', '^scripts/(?!buildAddon[.]mjs)', '[.]config[.](ts|js)$'] },
      to: { dependencyTypes: ['npm-dev'], dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'no-unlisted-package',
      severity: 'error',
      comment: 'A package that is present only because another one needs it may vanish with the next install.',
      from: {},
      to: { dependencyTypes: ['npm-no-pkg', 'npm-unknown'] },
    },
    {
      name: 'no-unresolvable',
      severity: 'error',
      comment: 'An import that resolves to nothing fails only when its line is reached.',
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '^(dist|build|results|[.]tilewright)/' },
    tsConfig: { fileName: 'tsconfig.json' },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'types', 'node', 'default'] },
  },
};
