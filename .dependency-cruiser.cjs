/** Layers, low to high; each may import only what stands before it. The comment of a rule says what to do instead. */
const layers = {
  util: [],
  core: ['util'],
  native: ['util', 'core'],
  ops: ['util', 'core'],
  eager: ['util', 'core', 'native'],
  autograd: ['util', 'core', 'ops'],
  mesh: ['util', 'core', 'native'],
  dtensor: ['util', 'core', 'mesh'],
  cuda: ['util', 'core', 'native', 'eager'],
  memory: ['util', 'core', 'native', 'eager'],
  checkpoint: ['util', 'core', 'ops'],
  nn: ['util', 'core', 'ops', 'autograd'],
  optim: ['util', 'core', 'ops', 'autograd'],
  amp: ['util', 'core', 'ops', 'autograd'],
  library: ['util', 'core', 'autograd'],
  compile: ['util', 'core', 'ops', 'autograd', 'dtensor', 'native', 'eager'],
  testing: ['util', 'core', 'ops', 'autograd', 'compile'],
  cli: ['util', 'core', 'native', 'cuda', 'memory'],
};

const layerRules = Object.entries(layers).map(([layer, allowed]) => ({
  name: `layer-${layer}`,
  comment: `lib/${layer} may import ${[layer, ...allowed].join(', ')} only. Move what you need down a layer, or hand it over in runtime.ts.`,
  severity: 'error',
  // Public entry points load the runtime.
  from: { path: `^lib/${layer}/`, pathNot: '^lib/(compile|testing)/index\\.ts$' },
  to: { path: '^lib/', pathNot: `^lib/(${[layer, ...allowed].join('|')})/` },
}));

module.exports = {
  forbidden: [
    ...layerRules,
    {
      name: 'no-cycles',
      comment: 'Break the cycle by handing the later part over at run time. Op files may refer to one another: gradients are written in ops.',
      severity: 'error',
      from: { pathNot: '^lib/ops/' },
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    { name: 'no-unresolved', comment: 'Fix the path or add the dependency to package.json.', severity: 'error', from: {}, to: { couldNotResolve: true } },
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
