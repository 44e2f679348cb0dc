// Loaded before Memento: what it sends to its provider goes to the server of the tests.
import { pathToFileURL } from 'node:url';

const axios = (await import(pathToFileURL(process.env.AXIOS).href)).default;
axios.interceptors.request.use((config) => ({
  ...config,
  proxy: false,
  url: config.url.replace('https://api.openai.com/v1', process.env.LOOPBACK),
}));
