/** What to say where a bundler has moved the code out of the package. */
export const BUNDLED =
  'shardwise was bundled into another file, where its native addon cannot be found. Make it ' +
  'external: --external:shardwise (esbuild), external: [/^shardwise/] (rollup, Vite), ' +
  "externals: { shardwise: 'commonjs shardwise' } (webpack), serverExternalPackages: " +
  "['shardwise'] (Next.js).";
