/** A dataset in JavaScript. */
export default { length: 100, get: (index) => index + 7 };
