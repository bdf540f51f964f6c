// Flat ESLint configuration. Formatting is nobody's business here; every rule below guards against a kind of bug
// or keeps a convention that other tools rely on. Import direction lives in .dependency-cruiser.cjs.
import tseslint from 'typescript-eslint';

/** Rules that need types. Each is cheap beside its worth: a lost promise is a lost result. */
const typeChecked = {
  // node:test's own runner awaits what these return.
  '@typescript-eslint/no-floating-promises': [
    'error',
    { allowForKnownSafeCalls: [{ from: 'package', package: 'node:test', name: ['describe', 'it'] }] },
  ],
  '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { arguments: false } }],
  '@typescript-eslint/await-thenable': 'error',
  // A switch over a union handles every member or says `default: return x satisfies never`.
  '@typescript-eslint/switch-exhaustiveness-check': [
    'error',
    { considerDefaultExhaustiveForUnions: true, requireDefaultForNonUnion: true },
  ],
};

/** Rules that need only the text. */
const textual = {
  '@typescript-eslint/no-explicit-any': 'error',
  '@typescript-eslint/no-unused-vars': [
    'error',
    { argsIgnorePattern: '^_', varsIgnorePattern: '^_', caughtErrors: 'none', ignoreRestSiblings: true },
  ],
  // No way round the compiler: neither @ts-ignore nor @ts-nocheck nor @ts-expect-error.
  '@typescript-eslint/ban-ts-comment': ['error', { 'ts-expect-error': true, minimumDescriptionLength: 3 }],
  // `import type` costs nothing at run time, so a room may name another's types without loading it.
  '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
  eqeqeq: 'error',
  'no-debugger': 'error',
  'no-var': 'error',
  'prefer-const': 'error',
  'no-restricted-syntax': [
    'error',
    { selector: 'TSEnumDeclaration', message: 'Use a string union: it erases, and a switch over it is checked.' },
    { selector: 'TSModuleDeclaration[global!=true]', message: 'Use a module: namespaces do not erase.' },
    {
      selector: "CallExpression[callee.property.name='only'][callee.object.name=/^(it|test|describe|suite)$/]",
      message: 'A focused test hides all the others.',
    },
  ],
};

/** settings.ts is the only reader of the environment, so that what changes a result can be listed. */
const oneReaderOfTheEnvironment = {
  'no-restricted-properties': [
    'error',
    { object: 'process', property: 'env', message: 'Add a documented field to settings.ts and read that.' },
  ],
};

export default tseslint.config(
  { ignores: ['dist/**', 'build/**', 'node_modules/**', '**/*.tw/**', 'results/**', '.tilewright/**', 'coverage/**'] },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.ts', '**/*.tsx'],
    // Configuration at the root lies outside tsconfig.json's `include`.
    ignores: ['*.config.ts'],
    plugins: { '@typescript-eslint': tseslint.plugin },
    languageOptions: {
      parser: tseslint.parser,
      parserOptions: {
        // Pages run in a browser: they are checked against its library.
        project: ['./tsconfig.json', './report/page/tsconfig.json'],
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: { ...textual, ...typeChecked, ...oneReaderOfTheEnvironment },
  },
  {
    files: ['*.config.ts', '**/*.js', '**/*.mjs', '**/*.cjs'],
    plugins: { '@typescript-eslint': tseslint.plugin },
    languageOptions: { parser: tseslint.parser },
    rules: { ...textual, ...oneReaderOfTheEnvironment },
  },
  { files: ['settings.ts'], rules: { 'no-restricted-properties': 'off' } },
);
