import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's own REST catalog, the one that its tests use, over a JDBC catalog in an SQLite file.
 *
 * Its published main program listens on all interfaces; this one on loopback alone.
 * Arguments: port, database file, warehouse folder.
 */
public class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri", "jdbc:sqlite:" + arguments[1],
            "jdbc.schema-version", "V1",
            "warehouse", arguments[2]);
        Catalog catalog = CatalogUtil.buildIcebergCatalog("backend", properties, new Configuration());
        ServletContextHandler handler = new ServletContextHandler();
        ServletHolder servlet = new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog)));
        handler.addServlet(servlet, "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
