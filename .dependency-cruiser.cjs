/**
 * Layers, low to high; each may import only what stands before it. The comment of a rule says what
 * to do instead.
 */
const layers = {
  core: [],
  native: ['core'],
  files: ['native'],
  ops: ['core'],
  eager: ['core', 'native'],
  autograd: ['core', 'ops'],
  cuda: ['core', 'native', 'eager'],
  memory: ['core', 'native', 'eager'],
  profiler: ['core', 'native', 'eager', 'cuda'],
  checkpoint: ['core', 'files', 'ops'],
  distributed: ['core', 'native', 'eager'],
  dtensor: ['core', 'distributed', 'ops'],
  nn: ['core', 'ops', 'autograd'],
  optim: ['core', 'ops', 'autograd'],
  amp: ['core', 'ops', 'autograd'],
  library: ['core', 'autograd'],
  compile: ['core', 'ops', 'autograd', 'native', 'eager'],
  spmd: ['core', 'ops', 'autograd', 'distributed', 'dtensor', 'nn', 'optim', 'compile'],
  testing: ['core', 'ops', 'cuda', 'autograd', 'compile', 'distributed', 'dtensor'],
  data: ['core', 'native', 'distributed'],
  train: ['core'],
  'eslint-plugin': [],
  cli: ['core', 'files', 'native', 'cuda', 'memory', 'distributed'],
};

/** Folders of a layer, low to high: each imports values only of those before it. */
const folders = {
  distributed: ['stores', 'engines', 'process-group', 'local-ranks', 'launch', 'device-mesh'],
  dtensor: ['spec', 'redistribute', 'propagation'],
};

/**
 * Parallel training is written as users could write it: on what is public. Checks of options,
 * arithmetic of shapes, values as JSON, work in time slices and a list of its classes give it no
 * power over anything.
 */
const publicEntries = [
  'index.ts',
  'distributed/index.ts',
  'dtensor/index.ts',
  'core/library-exports.ts',
  'core/options.ts',
  'core/shape.ts',
  'core/chunks.ts',
  'checkpoint/state/built-ins.ts',
  'checkpoint/state/json-values.ts',
  'checkpoint/state/paths.ts',
  'checkpoint/state/sealed-json.ts',
  'checkpoint/state/tensor-places.ts',
  'checkpoint/state/values.ts',
  'checkpoint/time-slices.ts',
];

/** Layers that may also use the library as its users do. */
const users = ['data', 'train', 'cli'];

const layerRules = Object.entries(layers).map(([layer, allowed]) => ({
  name: `layer-${layer}`,
  comment: `lib/${layer} may import ${[layer, ...allowed].join(', ')} only. Move what you need down a layer, or hand it over in runtime.ts.`,
  severity: 'error',
  // Public entry points load the runtime.
  from: { path: `^lib/${layer}/`, pathNot: '^lib/(compile|spmd|testing|data|train)/index\\.ts$' },
  to: {
    path: '^lib/',
    pathNot: `^lib/((${[layer, ...allowed].join('|')})/${users.includes(layer) ? '|index\\.ts$' : ''})`,
  },
}));

const folderRules = Object.entries(folders).flatMap(([layer, names]) =>
  names.map((folder, at) => ({
    name: `folder-${layer}-${folder}`,
    comment: `The folders of lib/${layer}, low to high: ${names.join(', ')}. Move what you need down.`,
    severity: 'error',
    from: { path: `^lib/${layer}/${folder}/` },
    to: {
      path: `^lib/${layer}/`,
      pathNot: `^lib/${layer}/(${names.slice(0, at + 1).join('|')})/`,
      dependencyTypesNot: ['type-only'],
    },
  })),
);

module.exports = {
  forbidden: [
    ...layerRules,
    ...folderRules,
    {
      name: 'layer-parallel',
      comment: `lib/parallel may import ${publicEntries.join(', ')} only. Make what it misses public there, so that users can write their own.`,
      severity: 'error',
      from: { path: '^lib/parallel/' },
      to: {
        path: '^lib/',
        pathNot: `^lib/(parallel/|(${publicEntries.join('|').replaceAll('.', '\\.')})$)`,
      },
    },
    {
      name: 'known-layer',
      comment:
        'A new folder of lib/ needs a line in the table of layers above: what may it import?',
      severity: 'error',
      from: {
        path: '^lib/[^/]+/',
        pathNot: `^lib/(${[...Object.keys(layers), 'parallel'].join('|')})/`,
      },
      to: {},
    },
    {
      name: 'no-cycles',
      comment:
        'Break the cycle by handing the later part over at run time. Op files may refer to one another: gradients are written in ops. Entries declare their own namespaces.',
      severity: 'error',
      from: {
        pathNot: '^lib/ops/|^lib/(compile/|spmd/|testing/|data/|train/)?(index|distributed)\\.ts$',
      },
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'no-unresolved',
      comment: 'Fix the path or add the dependency to package.json.',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
    {
      name: 'no-dev-dependencies',
      comment: 'What lib imports must be a dependency, or users do not get it.',
      severity: 'error',
      from: { path: '^lib/' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg'] },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
  },
};
