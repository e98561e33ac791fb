// What `require('shardwise/eslint-plugin')` gives: the same module objects as `import`.
import entry = require('./index.js');
export = entry;
