// What `require('shardwise/spmd')` gives: the same module objects as `import`.
import entry = require('./index.js');
export = entry;
