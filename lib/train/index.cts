// What `require('shardwise/train')` gives: the same module objects as `import`.
import entry = require('./index.js');
export = entry;
